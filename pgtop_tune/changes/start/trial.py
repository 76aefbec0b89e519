"""Trials of the next start, and the facts for the checks before it, from the server, its machine and its programs.
Blocking.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pgtop_tune.base.errors import ClusterProblem, ServerProblem, UsageProblem
from pgtop_tune.changes.model.change import ParameterChange, WantedParameter
from pgtop_tune.changes.model.change_set import PendingParameter
from pgtop_tune.changes.start.checks import AS_ON_PRIMARY, FILES, NEEDED, RestartFacts, check_possible, checks
from pgtop_tune.changes.start.machine_looks import at_place
from pgtop_tune.changes.start.next_start import PASSPHRASE, TLS_FILES, NextStart, next_start, values_after
from pgtop_tune.changes.start.places import check_directory, find_place, postmaster_pid, told_by_pg_config
from pgtop_tune.changes.start.rules import PARAMETERS, refusal_by_rules, start_refusal
from pgtop_tune.changes.statements import as_written, elements
from pgtop_tune.cluster import auto_conf
from pgtop_tune.cluster.dry_start import DryStart, StartText, dry_start, missing
from pgtop_tune.cluster.service import run_program
from pgtop_tune.host.cgroup_files import ServerGroup, parse_membership
from pgtop_tune.host.kernel_sections import parse_meminfo, with_pools
from pgtop_tune.host.kernel_text import read_once
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.host import HugePages
from pgtop_tune.model.instance import ServerPlace
from pgtop_tune.model.parameter_values import check_value, parse_bool
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.process.mount_namespace import parse_mountinfo

if TYPE_CHECKING:
    from pgtop_tune.changes.server.operator_session import OperatorSession

_PENDING: Final = """
SELECT s.name, current_setting(s.name, true) AS running, coalesce(f.setting, s.boot_val, '') AS after
  FROM pg_settings s
  LEFT JOIN LATERAL (SELECT setting FROM pg_file_settings
                      WHERE lower(name) = lower(s.name) ORDER BY seqno DESC LIMIT 1) f ON true
 WHERE s.pending_restart AND s.source NOT IN ('command line', 'environment variable')
   AND (f.setting IS NOT NULL OR s.source NOT IN ('default', 'override'))
 ORDER BY s.name
"""
"""A line that comes and goes leaves pending_restart, also where the server's own value is in force (guc.c);
that of wal_buffers is worked out, and not its boot_val."""
_STANDING: Final = """
SELECT (date_part('epoch', pg_postmaster_start_time()) * 1000)::bigint AS started_ms,
       pg_is_in_recovery() AS in_recovery,
       current_setting('server_version_num')::int / 10000 AS major,
       (SELECT count(*) FROM pg_stat_replication) AS standbys,
       count(*) FILTER (WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()) AS sessions,
       count(*) FILTER (WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
                          AND xact_start IS NOT NULL) AS in_transaction
  FROM pg_stat_activity
"""
_CONTROL_LINE: Final = re.compile(
    rf"({'|'.join(AS_ON_PRIMARY)}|max_prepared_xacts|max_locks_per_xact) setting:\s+(\d+)"
)
_CONTROL_NAMES: Final = {
    "max_prepared_xacts": "max_prepared_transactions",
    "max_locks_per_xact": "max_locks_per_transaction",
}
_LIBRARIES: Final = "PKGLIBDIR"
"""What pg_config calls the directory that $libdir stands for."""
_MAPPING: Final = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) .* /anon_hugepage", re.MULTILINE)


class ServerBeforeRestart(Struct, frozen=True):
    """The server before a restart.

    Attributes:
        started_ms: When it was started, milliseconds since the epoch.
        major: Its major version.
        in_recovery: True for a standby.
        standbys: Number of standbys that stream from it.
        sessions: Client sessions besides ours.
        in_transaction: Client sessions within a transaction, without ours.
        pending: What waits for a restart.
        parameters: Parameters that the checks look at or that are to be changed, by name.
        server_place: The place of the server.
        pid: Its postmaster; None where that is not one of this machine.
        next_start: The values and files that it would start with.
        library_directory: The directory that $libdir stands for; "" where this role may not ask.
    """

    started_ms: int
    major: int
    in_recovery: bool
    standbys: int
    sessions: int
    in_transaction: int
    pending: tuple[PendingParameter, ...]
    parameters: Mapping[str, Parameter]
    server_place: ServerPlace
    pid: int | None
    next_start: NextStart
    library_directory: str = ""


def started_ms(session: OperatorSession) -> int:
    """Return when the server was started, milliseconds since the epoch."""
    return int(session.rows(_STANDING)[0]["started_ms"])


def pending(session: OperatorSession, in_force: Sequence[ParameterChange]) -> tuple[PendingParameter, ...]:
    """Return the parameters that wait for a restart, each with our change where the journal has one.

    Raises:
        ServerProblem: This role may not look into the files; the hint has the GRANTs.
    """
    session.check_permitted()
    own_changes = {change.name: change for change in in_force}
    return tuple(
        PendingParameter(
            name=row["name"], running=row["running"] or "", after=row["after"], change=own_changes.get(row["name"])
        )
        for row in session.rows(_PENDING)
    )


def server_before_restart(
    session: OperatorSession, in_force: Sequence[ParameterChange], changes: Sequence[WantedParameter]
) -> ServerBeforeRestart:
    """Return the server as it is now.

    Args:
        session: To it.
        in_force: Changes of the journal.
        changes: Changes that are about to be written.

    Raises:
        ServerProblem: Its data directory does not answer.
    """
    row = session.rows(_STANDING)[0]
    parameters = session.parameters((*(change.name for change in changes), *NEEDED))
    pid, server_place = postmaster_pid(session), find_place(session)
    if not isinstance(pid, Unavailable):
        check_directory(server_place.data_directory, "no restart")
    return ServerBeforeRestart(
        **row,
        pending=pending(session, in_force),
        parameters={parameter.name: parameter for parameter in parameters},
        server_place=server_place,
        pid=None if isinstance(pid, Unavailable) else pid,
        next_start=at_place(
            next_start(session, changes, PARAMETERS), server_place, pid, {change.name.lower() for change in changes}
        ),
        library_directory=told_by_pg_config(session, _LIBRARIES),
    )


def restart_facts(
    server: ServerBeforeRestart, changes: Sequence[WantedParameter], dry: DryStart | Unavailable | None = None
) -> RestartFacts:
    """Return the facts for the checks.

    Args:
        server: As it is now.
        changes: Changes that are about to be written.
        dry: Outcome of a trial start; tried here where it is not given.
    """
    values = values_after(server.parameters, server.pending, changes)
    here = server.pid is not None
    page_size = values.number("huge_page_size")
    pool = _pool(int(page_size or 0)) if here else None
    dry = _tried(server, changes) if dry is None else dry
    memory_bytes, group_bytes = (None, None) if server.pid is None else _memory_bytes(server.pid)
    return RestartFacts(
        major=server.major,
        values=values,
        dry=dry,
        rule_refusal=start_refusal(server.next_start, server.major, tried=isinstance(dry, DryStart)),
        memory_bytes=memory_bytes,
        group_bytes=group_bytes,
        pool=pool,
        held_pages=_held(server, pool) + _overcommitted(pool),
        in_recovery=server.in_recovery,
        primary=_primary(server.server_place) if server.in_recovery and here else None,
        standbys=server.standbys,
        endpoint=server.server_place.endpoint,
        here=here,
    )


def _tried(server: ServerBeforeRestart, changes: Sequence[WantedParameter]) -> DryStart | Unavailable:
    if server.pid is None or not server.server_place.program:
        return Unavailable(Reason.NOT_LOCAL, server.server_place.why_not or "its programs are out of reach")
    try:
        text = with_changes(auto_conf.read(server.server_place.data_directory), changes)
        tried = start_text(server.server_place, text, server.next_start, with_libraries=True)
        return dry_start(
            server.server_place, tried, server.major, absent_libraries(server.library_directory, server.server_place)
        )
    except ClusterProblem as problem:
        return Unavailable(Reason.NO_PERMISSION, problem.message)


def with_changes(text: str, changes: Sequence[WantedParameter]) -> str:
    """Return the text of postgresql.auto.conf after changes. Pure."""
    for change in changes:
        value = None if change.value is None else as_written(change.name, change.value)
        text = auto_conf.with_line(text, change.name, value)
    return text


def start_text(
    server_place: ServerPlace,
    text: str,
    values: NextStart,
    *,
    with_libraries: bool,
    with_tls: bool = True,
    may_ask: bool = False,
    with_rules: bool = False,
) -> StartText:
    """Return the text and options of a trial start: relative names of TLS files are those of the data directory.

    Args:
        server_place: The server.
        text: Of postgresql.auto.conf.
        values: Those that the server would start with.
        with_libraries: Load shared_preload_libraries.
        with_tls: Read certificates and keys; not where that would run ssl_passphrase_command.
        may_ask: Run that command, too: the operator wants it, and has confirmed it.
        with_rules: Read the file of access rules, too.
    """
    options = {} if with_libraries else {"shared_preload_libraries": ""}
    if with_tls and (may_ask or not values.text(PASSPHRASE)):
        paths = ((name, values.text(name)) for name in TLS_FILES)
        options |= {name: f"{server_place.data_directory}/{path}" for name, path in paths if path and path[0] != "/"}
    else:
        options["ssl"] = "off"
    return StartText(text, tuple(options.items()), with_rules)


def absent_libraries(directory: str, server_place: ServerPlace) -> Callable[[str, str], Sequence[str]] | None:
    """Return what tells the libraries of a list that are not there; None where that cannot be said.

    Args:
        directory: The directory that $libdir stands for, "" where that is not known.
        server_place: The server.
    """
    if not directory:
        return None
    data = Path(server_place.data_directory)

    def absent(value: str, search_path: str) -> Sequence[str]:
        # The server passes over a value that is no list (miscinit.c, load_libraries).
        names = elements("shared_preload_libraries", value) or ()
        return missing(names, search_path, directory, data)

    return absent


def _memory_bytes(pid: int) -> tuple[int | None, int | None]:
    """Return the memory of the machine, and the limit of the postmaster's group."""
    try:
        total = parse_meminfo(0.0, read_once("/proc/meminfo")).total_bytes
        mounts = parse_mountinfo(read_once("/proc/self/mountinfo"))
        group = ServerGroup(parse_membership(read_once(f"/proc/{pid}/cgroup")), mounts, str(pid))
        sample = group.sample(time.monotonic(), lambda path: read_once(f"/{path}"))
    except (OSError, ValueError):
        return None, None
    return total, None if isinstance(sample, Unavailable) else sample.memory_max_bytes


def _pool(page_bytes: int) -> HugePages | None:
    """Return the pool of a page size, of the kernel's default one for 0."""
    try:
        default = parse_meminfo(0.0, read_once("/proc/meminfo")).huge_pages
    except (OSError, ValueError):
        return None
    pools = with_pools(default, (page_bytes,) if page_bytes else (), lambda path: read_once(f"/{path}"))
    return next((pool for pool in pools if not page_bytes or pool.page_bytes == page_bytes), None)


def _overcommitted(pool: HugePages | None) -> int:
    """Return the pages that the kernel adds to a pool on demand."""
    try:
        size = 0 if pool is None else pool.page_bytes // 1024
        return int(read_once(f"/sys/kernel/mm/hugepages/hugepages-{size}kB/nr_overcommit_hugepages"))
    except (OSError, ValueError):
        return 0


def _held(server: ServerBeforeRestart, pool: HugePages | None) -> int:
    """Return the huge pages of the running server: of its mapping, else as reported, where it cannot start without."""
    if pool is None:
        return 0
    try:
        maps = read_once(f"/proc/{server.pid}/maps")
    except OSError:
        need = server.parameters.get("shared_memory_size_in_huge_pages")
        on = server.parameters.get("huge_pages")
        sure = need is not None and on is not None and on.setting == "on"
        return max(int(need.setting), 0) if need is not None and sure else 0
    size = sum(int(end, 16) - int(begin, 16) for begin, end in _MAPPING.findall(maps))
    return size // pool.page_bytes


def _primary(server_place: ServerPlace) -> dict[str, int]:
    """Return the values of the primary, as pg_control of a standby keeps them (pg_controldata)."""
    program = Path(server_place.program).with_name("pg_controldata")
    if not program.is_file():
        return {}
    ran = run_program((str(program), "-D", server_place.data_directory), server_place, as_owner=True, in_english=True)
    settings_found = _CONTROL_LINE.findall("\n".join(ran.output_lines))
    return {_CONTROL_NAMES.get(name, name): int(value) for name, value in settings_found}


# Trials of values before they reach postgresql.auto.conf: each resulting text once.
#
# The server's own program reads the text where it and the files can be reached, and the rows of `rules` judge what
# that program does not see. The text as it is now is judged likewise: its own faults refuse no change.

_AT_RESTART: Final = "postmaster"
_WHERE_LIBRARIES: Final = "dynamic_library_path"
_UNREAD: Final = NextStart(rows={}, changes={}, directories={}, counts={})
"""The next start where neither a rule nor a certificate asks for it."""
_ACCESS_RULES: Final = "hba_file"
_NUMBER: Final = re.compile(r"\d+")


class StartTrials:
    """Tries the texts of one server; those that have passed are not tried again.

    Args:
        tell: Takes that values are judged by rules alone.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell: Final = tell
        self._passed: Final[set[StartText]] = set()

    def check(
        self,
        session: OperatorSession,
        server_place: ServerPlace,
        changes: Sequence[WantedParameter],
        current: Mapping[str, Parameter],
    ) -> None:
        """Make sure that the server starts with the values of a set.

        Args:
            session: To the server.
            server_place: The place of the server.
            changes: The changes; the server itself refuses invalid values, in its words.
            current: The parameters as they are, by name in lower case.

        Raises:
            ServerProblem: It would not start; nothing was changed.
        """
        changes = [change for change in changes if change.scope.is_system and _is_taken(change, current)]
        if not changes:
            return
        for change in changes:
            # The file with such a name is a syntax error to every server (guc-file.l, QUALIFIED_ID).
            if change.name.count(".") > 1:
                raise ServerProblem(f"{change.name} has two dots: the server could not read its files again")
        at_restart = any(current[change.name.lower()].context == _AT_RESTART for change in changes)
        with_libraries = at_restart or any(change.name.lower() == _WHERE_LIBRARIES for change in changes)
        touched = frozenset(change.name.lower() for change in changes)
        before = after = _UNREAD
        if _is_of_tls(touched) or not touched.isdisjoint(PARAMETERS):
            pid = postmaster_pid(session)
            before = at_place(next_start(session, (), PARAMETERS, touched=touched), server_place, pid, touched)
            after = at_place(next_start(session, changes, PARAMETERS), server_place, pid, touched)
        dry = self._dry(session, server_place, changes, (before, after), with_libraries=with_libraries)
        refusal = dry.refusal if isinstance(dry, DryStart) else ""
        refusal = refusal or refusal_by_rules(before, after, changes, session.major, tried=isinstance(dry, DryStart))
        if refusal:
            raise ServerProblem(f"the server would not start again: {refusal}", _remedy(changes, current))
        if at_restart:
            server = server_before_restart(session, (), changes)
            check_possible(checks(restart_facts(server, changes, dry)), apart_from=FILES)

    def _dry(
        self,
        session: OperatorSession,
        server_place: ServerPlace,
        changes: Sequence[WantedParameter],
        values: tuple[NextStart, NextStart],
        *,
        with_libraries: bool,
    ) -> DryStart | Unavailable:
        """Return the outcome of a start with the changes, with a refusal only where they are its reason.

        The values are those that the next start reads now, and with the changes.
        """
        before, after = values
        if not server_place.program:
            return self._by_rules(
                Unavailable(Reason.NOT_LOCAL, server_place.why_not or "its programs are out of reach")
            )
        names = {change.name.lower() for change in changes}
        with_tls = _is_of_tls(names)
        may_ask = PASSPHRASE in names
        try:
            old = auto_conf.read(server_place.data_directory)
            new = start_text(
                server_place,
                with_changes(old, changes),
                after,
                with_libraries=with_libraries,
                with_tls=with_tls,
                may_ask=may_ask,
                with_rules=_ACCESS_RULES in names,
            )
            if new in self._passed and not (with_libraries or with_tls or new.with_rules):
                return DryStart()
            missing = absent_libraries(told_by_pg_config(session, _LIBRARIES), server_place) if with_libraries else None
            dry = dry_start(server_place, new, session.major, missing)
            if dry.refusal:
                as_is = start_text(server_place, old, before, with_libraries=with_libraries, with_tls=with_tls)
                already = dry_start(server_place, as_is, session.major, missing).refusal
                if already and not _is_of(changes, dry.refusal, already):
                    # More than this one fault it does not see.
                    return Unavailable(Reason.FAILED, already)
            else:
                self._passed.add(new)
        except ClusterProblem as problem:
            return self._by_rules(Unavailable(Reason.NO_PERMISSION, problem.message))
        return dry

    def _by_rules(self, reason: Unavailable) -> Unavailable:
        self._tell(f"a start was not tried, values are judged by the rules of PostgreSQL: {reason.detail}")
        return reason


def _is_of_tls(names: Collection[str]) -> bool:
    return any(name == "ssl" or name.startswith("ssl_") for name in names)


def _remedy(changes: Sequence[WantedParameter], current: Mapping[str, Parameter]) -> str:
    """Return what to do: the range of a value that is outside, as far as a range says it."""
    for change in changes:
        try:
            if change.value is not None:
                check_value(current[change.name.lower()], change.value)
        except UsageProblem as problem:
            return f"{problem.hint}; nothing was changed"
    return "choose another value; nothing was changed"


def _is_of(changes: Sequence[WantedParameter], refusal: str, already: str) -> bool:
    """Return whether a server that would not start as it is has one more reason with some changes."""
    is_another = _NUMBER.sub("", refusal) != _NUMBER.sub("", already)
    return is_another and any(change.name.lower() in refusal.lower() for change in changes)


def _is_word(parameter: Parameter, value: str) -> bool:
    """Return whether an enum may know a word: enumvals leaves those of booleans out that it takes, too."""
    if value.lower() in parameter.enumvals:
        return True
    try:
        parse_bool(value)
    except UsageProblem:
        return False
    return True


def _is_taken(change: WantedParameter, current: Mapping[str, Parameter]) -> bool:
    """Return whether a value is to be tried: not where the server refuses it before any start, in its own words."""
    parameter = current.get(change.name.lower())
    if parameter is None or change.value is None or change.name.lower() in PARAMETERS:
        return parameter is not None
    try:
        check_taken(parameter, change.value)
    except UsageProblem:
        return False
    return True


def check_taken(parameter: Parameter, value: str) -> None:
    """Make sure that the server may take a value before any start.

    Raises:
        UsageProblem: It would refuse it.
    """
    if "\n" in value:
        raise UsageProblem(f"{parameter.name}: a value of several lines cannot be written")
    if parameter.vartype == "enum" and not _is_word(parameter, value):
        choices = ", ".join(parameter.enumvals)
        raise UsageProblem(f"{parameter.name}: {value!r} is not one of its values", f"one of {choices}")
    check_value(parameter, value)
