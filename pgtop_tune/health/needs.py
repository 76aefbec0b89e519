"""The parts of the facts that checks may need, as rows: sections of the newest frame, settings of the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from msgspec import Struct

from pgtop_tune.health.facts import CheckFacts, Missing
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Section
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.parameter_values import unit_bytes
from pgtop_tune.model.postgres import Parameter, ParameterSample

T = TypeVar("T")


class FieldNeed(Struct, Generic[T], frozen=True):
    """A part of `CheckFacts`; see `FactNeed`."""

    name: str
    source: str
    of: Callable[[CheckFacts], T | Unavailable]


def _section(name: str, section: Section[T]) -> FieldNeed[T]:
    """Return the need of a section of the newest frame."""
    return FieldNeed(name, section.source, lambda facts: section(facts.frames[-1]))


SERVER: Final = _section("server", sections.server)
PARAMETERS: Final = _section("parameters", sections.parameters)
ACTIVITY: Final = _section("activity", sections.activity)
DATABASE: Final = _section("database", sections.database)
DATABASES: Final = _section("databases", sections.databases)
WAL: Final = _section("wal", sections.wal)
CHECKPOINTS: Final = _section("checkpoints", sections.checkpoints)
IO: Final = _section("io", sections.io)
ARCHIVER: Final = _section("archiver", sections.archiver)
REPLICATION: Final = _section("replication", sections.replication)
SLOTS: Final = _section("slots", sections.slots)
SUBSCRIPTIONS: Final = _section("subscriptions", sections.subscriptions)
HORIZON: Final = _section("horizon", sections.horizon)
DATABASE_LIMITS: Final = _section("database limits", sections.database_limits)
TEMP_FILES: Final = _section("temporary files", sections.temp_files)
PROGRESS: Final = _section("progress", sections.progress)
HOST: Final = _section("host", sections.machine)
CPU: Final = _section("cpu", sections.cpu)
MEMORY: Final = _section("memory", sections.memory)
PRESSURE: Final = _section("pressure", sections.pressure)
DISKS: Final = _section("disks", sections.disks)
FILE_SYSTEMS: Final = _section("file systems", sections.file_systems)
NUMA: Final = _section("NUMA nodes", sections.numa)
FREQUENCY: Final = _section("CPU frequency", sections.frequency)
CGROUP: Final = _section("control group", sections.cgroup)
POOLERS: Final = _section("poolers", sections.pooler)


MACHINE: Final = FieldNeed(
    "machine", "/proc/sys, /sys/kernel, /sys/block, /proc/PID of the postmaster", lambda facts: facts.machine
)
BACKUP_TOOLS: Final = FieldNeed(
    "backup tools", "pgbackrest info, barman list-backups, wal-g backup-list", lambda facts: facts.backups
)
MEASURED: Final = FieldNeed("measurement", "--measure", lambda facts: facts.measured)

_HIDDEN: Final = (
    "the server's {name} is hidden by our session's value ({source}); GRANT SELECT ON pg_file_settings and GRANT "
    "EXECUTE ON FUNCTION pg_show_all_file_settings() grant access"
)


_OF_READERS: Final = frozenset(
    {"dynamic_library_path", "log_directory", "log_filename", "primary_conninfo", "session_preload_libraries"}
    | {"shared_preload_libraries", "ssl_ciphers", "ssl_ecdh_curve", "ssl_groups", "ssl_max_protocol_version"}
    | {"ssl_min_protocol_version", "ssl_sni", "ssl_tls13_ciphers", "unix_socket_directories"}
)
"""Parameters that only superusers and members of pg_read_all_settings see (GUC_SUPERUSER_ONLY)."""
_ALWAYS_THERE: Final = "data_directory"
"""One of these parameters, which every server has."""
_NOT_SHOWN: Final = Unavailable(Reason.NO_PERMISSION, "hidden from this role; GRANT pg_read_all_settings grants access")


_OF_SESSION: Final = frozenset({"global", "database", "user", "database user", "client", "session"})
"""pg_settings.source of values that the session has and the server has not."""


def is_of_session(parameter: Parameter) -> bool:
    """Return whether a row has the value of the asking session, not the server's."""
    return parameter.source in _OF_SESSION


class Parameters:
    """Parameters by name, in numbers and units of our choice.

    Args:
        sample: pg_settings.
    """

    _SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}

    def __init__(self, sample: ParameterSample) -> None:
        self._of = {parameter.name: parameter for parameter in sample.parameters}

    def find(self, name: str) -> Parameter | None:
        """Return the row; None where this server does not have the parameter.

        Raises:
            Missing: The server hides it from this role, or only the value of our own session is known, which a role or
                a database has for its own.
        """
        row = self._of.get(name)
        if row is None and name in _OF_READERS and self.are_hidden:
            raise Missing(name, _NOT_SHOWN)
        if row is not None and is_of_session(row):
            raise Missing(name, Unavailable(Reason.NO_PERMISSION, _HIDDEN.format(name=name, source=row.source)))
        return row

    @property
    def are_hidden(self) -> bool:
        """Return whether this role does not see the parameters that only some roles see."""
        return _ALWAYS_THERE not in self._of

    def visible(self, name: str) -> Parameter | None:
        """Return the row; None also where it is hidden, or only the value of our own session is known."""
        row = self._of.get(name)
        return None if row is None or is_of_session(row) else row

    def row(self, name: str) -> Parameter:
        """Return the row.

        Raises:
            Missing: This server does not have the parameter, or hides it; or as `find`.
        """
        parameter = self.find(name)
        if parameter is None:
            raise Missing(name, Unavailable(Reason.NOT_SUPPORTED, f"this server does not show {name}"))
        return parameter

    def text(self, name: str) -> str:
        """Return pg_settings.setting. Raises as `row`."""
        return self.row(name).setting

    def shown(self, name: str) -> str:
        """Return the value as SHOW prints it. Raises as `row`."""
        return self.row(name).shown

    def on(self, name: str) -> bool:
        """Return whether a switch is on. Raises as `row`."""
        return self.row(name).setting == "on"

    def number(self, name: str) -> float:
        """Return bytes for sizes, seconds for times, else the number. Raises as `row`."""
        row = self.row(name)
        try:
            value = float(row.setting)
            return value if value < 0 else value * self._SECONDS.get(row.unit, unit_bytes(row.unit))
        except ValueError:
            reason = Unavailable(Reason.NOT_SUPPORTED, f"{name} is not a number: {row.setting}")
            raise Missing(name, reason) from None

    def whole(self, name: str) -> int:
        """Return `number` as an integer. Raises as `row`."""
        return int(self.number(name))


def parameters(facts: CheckFacts) -> Parameters:
    """Return the parameters of the server.

    Raises:
        Missing: They were not seen.
    """
    return Parameters(facts.have(PARAMETERS))


def major(facts: CheckFacts) -> int:
    """Return the major version of the server.

    Raises:
        Missing: It was not seen.
    """
    return facts.have(SERVER).version_num // 10_000
