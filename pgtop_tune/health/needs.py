"""The parts of the facts that checks may need, as rows: sections of the newest frame, settings of the machine."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from msgspec import Struct

from pgtop_tune.health.configured import is_of_session
from pgtop_tune.health.facts import CheckFacts, Missing
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Section
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.machine import BackupTools, MachineDetails
from pgtop_tune.model.parameter_values import unit_bytes
from pgtop_tune.model.postgres import Parameter, ParameterSample
from pgtop_tune.model.setup import Measured

T = TypeVar("T")


class SectionNeed(Struct, Generic[T], frozen=True):
    """A section of the newest frame; see `facts.FactNeed`."""

    name: str
    section: Section[T]

    @property
    def source(self) -> str:
        """See `Need.source`."""
        return self.section.source

    def of(self, facts: CheckFacts) -> T | Unavailable:
        """See `Need.of`."""
        return self.section(facts.frames[-1])


SERVER: Final = SectionNeed("server", sections.server)
PARAMETERS: Final = SectionNeed("parameters", sections.parameters)
ACTIVITY: Final = SectionNeed("activity", sections.activity)
DATABASE: Final = SectionNeed("database", sections.database)
DATABASES: Final = SectionNeed("databases", sections.databases)
WAL: Final = SectionNeed("wal", sections.wal)
CHECKPOINTS: Final = SectionNeed("checkpoints", sections.checkpoints)
IO: Final = SectionNeed("io", sections.io)
ARCHIVER: Final = SectionNeed("archiver", sections.archiver)
REPLICATION: Final = SectionNeed("replication", sections.replication)
SLOTS: Final = SectionNeed("slots", sections.slots)
SUBSCRIPTIONS: Final = SectionNeed("subscriptions", sections.subscriptions)
HORIZON: Final = SectionNeed("horizon", sections.horizon)
DATABASE_LIMITS: Final = SectionNeed("database limits", sections.database_limits)
TEMP_FILES: Final = SectionNeed("temporary files", sections.temp_files)
PROGRESS: Final = SectionNeed("progress", sections.progress)
HOST: Final = SectionNeed("host", sections.machine)
CPU: Final = SectionNeed("cpu", sections.cpu)
MEMORY: Final = SectionNeed("memory", sections.memory)
PRESSURE: Final = SectionNeed("pressure", sections.pressure)
DISKS: Final = SectionNeed("disks", sections.disks)
FILE_SYSTEMS: Final = SectionNeed("file systems", sections.file_systems)
NUMA: Final = SectionNeed("NUMA nodes", sections.numa)
FREQUENCY: Final = SectionNeed("CPU frequency", sections.frequency)
CGROUP: Final = SectionNeed("control group", sections.cgroup)
POOLERS: Final = SectionNeed("poolers", sections.pooler)


class _Machine(Struct, frozen=True):
    """Settings of the machine."""

    name: str = "machine"
    source: str = "/proc/sys, /sys/kernel, /sys/block, /proc/PID of the postmaster"

    def of(self, facts: CheckFacts) -> MachineDetails | Unavailable:
        """See `Need.of`."""
        return facts.machine


MACHINE: Final = _Machine()


class _BackupTools(Struct, frozen=True):
    """What backup tools say."""

    name: str = "backup tools"
    source: str = "pgbackrest info, barman list-backups, wal-g backup-list"

    def of(self, facts: CheckFacts) -> BackupTools | Unavailable:
        """See `Need.of`."""
        return facts.backups


BACKUP_TOOLS: Final = _BackupTools()


class _Measured(Struct, frozen=True):
    """What --measure found."""

    name: str = "measurement"
    source: str = "--measure"

    def of(self, facts: CheckFacts) -> Measured | Unavailable:
        """See `Need.of`."""
        return facts.measured


MEASURED: Final = _Measured()


_HIDDEN: Final = (
    "{name} of the server is hidden by that of our session ({source}); GRANT SELECT ON pg_file_settings and GRANT "
    "EXECUTE ON FUNCTION pg_show_all_file_settings() grant access"
)


_OF_READERS: Final = frozenset(
    {"dynamic_library_path", "log_directory", "log_filename", "primary_conninfo", "session_preload_libraries"}
    | {"shared_preload_libraries", "ssl_ciphers", "ssl_ecdh_curve", "ssl_groups", "ssl_max_protocol_version"}
    | {"ssl_min_protocol_version", "ssl_sni", "ssl_tls13_ciphers", "unix_socket_directories"}
)
"""Parameters that only superusers and members of pg_read_all_settings see (GUC_SUPERUSER_ONLY)."""
_ALWAYS_THERE: Final = "data_directory"
"""One of them that every server has."""
_NOT_SHOWN: Final = Unavailable(Reason.NO_PERMISSION, "hidden from this role; GRANT pg_read_all_settings grants access")


class Parameters:
    """Parameters by name, in numbers and units of our choice.

    Args:
        sample: pg_settings.
    """

    _SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}

    def __init__(self, sample: ParameterSample) -> None:
        self._of = {parameter.name: parameter for parameter in sample.parameters}

    def find(self, name: str) -> Parameter | None:
        """The row; None where this server does not have the parameter.

        Raises:
            Missing: The server hides it from this role, or only the value of our own session is known, which a role or
                a database has for its own.
        """
        found = self._of.get(name)
        if found is None and name in _OF_READERS and self.are_hidden:
            raise Missing(name, _NOT_SHOWN)
        if found is not None and is_of_session(found):
            raise Missing(name, Unavailable(Reason.NO_PERMISSION, _HIDDEN.format(name=name, source=found.source)))
        return found

    @property
    def are_hidden(self) -> bool:
        """Return whether this role does not see the parameters that only some roles see."""
        return _ALWAYS_THERE not in self._of

    def visible(self, name: str) -> Parameter | None:
        """The row; None also where it is hidden, or only the value of our own session is known."""
        found = self._of.get(name)
        return None if found is None or is_of_session(found) else found

    def row(self, name: str) -> Parameter:
        """The row.

        Raises:
            Missing: This server does not have the parameter, or hides it; or as `find`.
        """
        found = self.find(name)
        if found is None:
            raise Missing(name, Unavailable(Reason.NOT_SUPPORTED, f"this server does not show {name}"))
        return found

    def text(self, name: str) -> str:
        """pg_settings.setting. Raises as `row`."""
        return self.row(name).setting

    def shown(self, name: str) -> str:
        """As SHOW prints it. Raises as `row`."""
        return self.row(name).shown

    def on(self, name: str) -> bool:
        """Whether a switch is on. Raises as `row`."""
        return self.row(name).setting == "on"

    def number(self, name: str) -> float:
        """Bytes for sizes, seconds for times, else the number. Raises as `row`."""
        row = self.row(name)
        try:
            value = float(row.setting)
            return value if value < 0 else value * self._SECONDS.get(row.unit, unit_bytes(row.unit))
        except ValueError:
            why = Unavailable(Reason.NOT_SUPPORTED, f"{name} is not a number: {row.setting}")
            raise Missing(name, why) from None

    def whole(self, name: str) -> int:
        """`number`, whole. Raises as `row`."""
        return int(self.number(name))


def parameters(facts: CheckFacts) -> Parameters:
    """The parameters of the server.

    Raises:
        Missing: They were not seen.
    """
    return Parameters(facts.have(PARAMETERS))


def major(facts: CheckFacts) -> int:
    """Major version of the server.

    Raises:
        Missing: It was not seen.
    """
    return facts.have(SERVER).version_num // 10_000
