"""Values that are tried before they reach postgresql.auto.conf: each resulting text once. Blocking.

The server's own program reads the text where it and the files can be reached, and the rows of `rules` judge what that
program does not see. The text as it is now is judged likewise: what it has of its own refuses no change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pgtop_tune.base.errors import ClusterProblem, ServerProblem, UsageProblem
from pgtop_tune.changes.model.change import ScopeKind, WantedParameter
from pgtop_tune.changes.model.restart import RestartVerdict
from pgtop_tune.changes.start.checks import FILES, checks
from pgtop_tune.changes.start.facts import (
    absent_libraries,
    auto_conf_text,
    library_directory,
    restart_facts,
    server_before_restart,
    start_text,
    with_changes,
)
from pgtop_tune.changes.start.machine_looks import at_place
from pgtop_tune.changes.start.next_start import PASSPHRASE, NextStart, next_start
from pgtop_tune.changes.start.places import postmaster_pid
from pgtop_tune.changes.start.rules import PARAMETERS, refusal_by_rules
from pgtop_tune.cluster.dry_start import DryStart, StartText, dry_start
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.instance import ServerPlace
from pgtop_tune.model.parameter_values import check_value, parse_bool
from pgtop_tune.model.postgres import Parameter

if TYPE_CHECKING:
    from pgtop_tune.changes.server.operator_session import OperatorSession

_AT_RESTART: Final = "postmaster"
_WHERE_LIBRARIES: Final = "dynamic_library_path"
_UNREAD: Final = NextStart(rows={}, changes={}, directories={}, counts={})
"""Where neither a rule nor a certificate asks for it."""
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
        place: ServerPlace,
        changes: Sequence[WantedParameter],
        current: Mapping[str, Parameter],
    ) -> None:
        """Make sure that the server starts with the values of a set.

        Args:
            session: To the server.
            place: Where it is.
            changes: The changes; what the server refuses by itself is left to its words.
            current: The parameters as they are, by name in lower case.

        Raises:
            ServerProblem: It would not start; nothing was changed.
        """
        changes = [change for change in changes if change.scope.kind is ScopeKind.SYSTEM and _is_taken(change, current)]
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
            before = at_place(next_start(session, (), PARAMETERS, touched=touched), place, pid, touched)
            after = at_place(next_start(session, changes, PARAMETERS), place, pid, touched)
        dry = self._dry(session, place, changes, (before, after), with_libraries=with_libraries)
        refusal = dry.refusal if isinstance(dry, DryStart) else ""
        refusal = refusal or refusal_by_rules(before, after, changes, session.major, tried=isinstance(dry, DryStart))
        if refusal:
            raise ServerProblem(f"the server would not start again: {refusal}", _remedy(changes, current))
        if at_restart:
            server = server_before_restart(session, (), changes)
            for check in checks(restart_facts(server, changes, dry)):
                if check.verdict is RestartVerdict.IMPOSSIBLE and check.subject != FILES:
                    raise ServerProblem(check.words, "; ".join(filter(None, (check.hint, "nothing was changed"))))

    def _dry(
        self,
        session: OperatorSession,
        place: ServerPlace,
        changes: Sequence[WantedParameter],
        values: tuple[NextStart, NextStart],
        *,
        with_libraries: bool,
    ) -> DryStart | Unavailable:
        """Return what a start with the changes comes to, with a refusal only where they are its reason.

        The values are those that the next start reads now, and with the changes.
        """
        before, after = values
        if not place.program:
            return self._by_rules(Unavailable(Reason.NOT_LOCAL, place.why_not or "its programs are out of reach"))
        names = {change.name.lower() for change in changes}
        with_tls = _is_of_tls(names)
        may_ask = PASSPHRASE in names
        try:
            old = auto_conf_text(place)
            new = start_text(
                place,
                with_changes(old, changes),
                after,
                with_libraries=with_libraries,
                with_tls=with_tls,
                may_ask=may_ask,
                with_rules=_ACCESS_RULES in names,
            )
            if new in self._passed and not (with_libraries or with_tls or new.with_rules):
                return DryStart()
            missing = absent_libraries(library_directory(session), place) if with_libraries else None
            dry = dry_start(place, new, session.major, missing)
            if dry.refusal:
                as_is = start_text(place, old, before, with_libraries=with_libraries, with_tls=with_tls)
                already = dry_start(place, as_is, session.major, missing).refusal
                if already and not _is_of(changes, dry.refusal, already):
                    # More than this one fault it does not see.
                    return Unavailable(Reason.FAILED, already)
            else:
                self._passed.add(new)
        except ClusterProblem as problem:
            return self._by_rules(Unavailable(Reason.NO_PERMISSION, problem.message))
        return dry

    def _by_rules(self, why: Unavailable) -> Unavailable:
        self._tell(f"a start was not tried, values are judged by the rules of PostgreSQL: {why.detail}")
        return why


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
    """Makes sure that the server may take a value before any start.

    Raises:
        UsageProblem: It would refuse it.
    """
    if "\n" in value:
        raise UsageProblem(f"{parameter.name}: a value of several lines cannot be written")
    if parameter.vartype == "enum" and not _is_word(parameter, value):
        words = ", ".join(parameter.enumvals)
        raise UsageProblem(f"{parameter.name}: {value!r} is not one of its values", f"one of {words}")
    check_value(parameter, value)
