"""What `set` and `reset` do: show the SQL, change, read back, and with a time take it back again."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from pgtop_tune.cli.assignments import SESSION_CONTEXTS, check_known, check_value
from pgtop_tune.cli.connecting import can_ask
from pgtop_tune.cli.output import complain, say, tell
from pgtop_tune.errors import PgtopError, ServerProblem, UsageProblem
from pgtop_tune.model.change import SYSTEM, ParameterChange, Scope, ScopeKind, Terms, Wanted
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.postgres.conninfo import ConnInfo
from pgtop_tune.postgres.control import PostgresControl, Rules
from pgtop_tune.postgres.sql_hand import open_hand
from pgtop_tune.tuning.fence import loss_of
from pgtop_tune.tuning.ordering import in_order
from pgtop_tune.units import age

_RELOAD: Final = " SELECT pg_reload_conf();"
_NAMES: Final = "SELECT name FROM pg_settings"
_BACKSTOP_S: Final = 2.0
"""After our own deadline the control takes it back by itself, then the process that waits for our end."""
_AGAIN_S: Final = 2.0
_READ_ONLY: Final = "25006"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody wants changed, and how.

    Attributes:
        wanted: Parameters with values; None resets.
        scope: For whom; None is the session of the next load.
        for_s: It is taken back after so many seconds; None leaves it.
        reason: For the journal.
        dry_run: Only show what would be done.
        allow_unsafe: Values that can lose data may be unlocked.
        confirmed: Names that were typed to unlock them.
    """

    wanted: tuple[Wanted, ...]
    scope: Scope | None = SYSTEM
    for_s: float | None = None
    reason: str = ""
    dry_run: bool = False
    allow_unsafe: bool = False
    confirmed: frozenset[str] = frozenset()


async def change(conninfo: ConnInfo, asked: Asked) -> int:
    """Does it.

    Returns:
        The exit status.

    Raises:
        UsageProblem: A name or a value that the server would not take.
        UnsafeChange: A value can lose data and was not unlocked.
        ServerProblem: The server refused; nothing is changed.
    """
    control = PostgresControl(conninfo, rules=Rules(loss_of, in_order, asked.allow_unsafe))
    try:
        current = {each.name.lower(): each for each in await control.list(tuple(each.name for each in asked.wanted))}
        await _check(conninfo, asked, current)
        if asked.scope is None:
            _show_options(asked.wanted, current)
            return 0
        confirmed = _unlocked(asked, current)
        texts = [control.statement(each.name, each.value, each.scope) for each in in_order(asked.wanted, current)]
        for text in texts:
            say(text.removesuffix(_RELOAD))
        if texts[0].endswith(_RELOAD):
            say(_RELOAD.strip())
        if asked.dry_run:
            return 0
        keep_within_s = None if asked.for_s is None else asked.for_s + _BACKSTOP_S
        await _make(control, asked, Terms(keep_within_s, asked.reason, confirmed))
    finally:
        await control.aclose()
    return 0


async def _check(conninfo: ConnInfo, asked: Asked, current: dict[str, Parameter]) -> None:
    names = [each.name for each in asked.wanted]
    if any(name.lower() not in current for name in names):
        hand = await open_hand(conninfo)
        try:
            known = [str(row[0]) for row in await hand.rows(_NAMES)]
        finally:
            await hand.aclose()
        check_known(names, current.values(), known)
    for each in asked.wanted:
        if each.value is not None:
            check_value(current[each.name.lower()], each.value)


def _show_options(wanted: Sequence[Wanted], current: dict[str, Parameter]) -> None:
    """PGOPTIONS for a load: libpq splits them at spaces, a backslash keeps one (libpq documentation, "options")."""
    words = []
    for each in wanted:
        parameter = current[each.name.lower()]
        if parameter.context not in SESSION_CONTEXTS:
            raise UsageProblem(
                f"{parameter.name} is one value for the whole server (context {parameter.context})",
                "--scope system changes it",
            )
        value = (each.value or "").replace("\\", "\\\\").replace(" ", "\\ ")
        words.append(f"-c {parameter.name}={value}")
    say(f"export PGOPTIONS={shlex.quote(' '.join(words))}")
    tell("nothing is changed on the server: a load started with it has these values in its sessions, nobody else")


def _unlocked(asked: Asked, current: dict[str, Parameter]) -> frozenset[str]:
    """Names that somebody has typed to unlock values that can lose data; the control refuses what is missing.

    Raises:
        UsageProblem: It would stay.
    """
    confirmed = set(asked.confirmed)
    for each in asked.wanted:
        loss = loss_of(each.name, each.value, current[each.name.lower()].boot_val)
        if not loss or not asked.allow_unsafe:
            continue
        if asked.for_s is None:
            raise UsageProblem(
                f"{each.name} = {each.value} can lose {loss}: it is taken back when this command ends",
                "say for how long, as in --for 5m",
            )
        tell(f"{each.name} = {each.value} can lose {loss}")
        if each.name not in confirmed and not asked.dry_run and can_ask():
            confirmed.add(input(f"type {each.name} to unlock it: ").strip())
    return frozenset(confirmed)


async def _make(control: PostgresControl, asked: Asked, terms: Terms) -> None:
    try:
        made, interrupted = await _to_the_end(control.apply_set(asked.wanted, terms))
    except ServerProblem as problem:
        if problem.sqlstate == _READ_ONLY:
            raise ServerProblem(
                problem.message, "this is a standby: roles and databases are changed on the primary", problem.sqlstate
            ) from None
        raise
    for each in made:
        _say_change(each, each.shown_before)
    if asked.for_s is None:
        if interrupted:
            raise asyncio.CancelledError
        if any(each.scope.kind is ScopeKind.SYSTEM for each in made):
            tell("`pgtop-tune revert --last` takes it back")
        return
    set_id = made[0].set_id or made[0].id
    tell(
        f"taken back after {age(asked.for_s)}{' s' if asked.for_s < 60 else ''}, or at once with Ctrl-C (set {set_id})"
    )
    await _wait_and_take_back(control, set_id, 0.0 if interrupted else asked.for_s)
    if interrupted:
        raise asyncio.CancelledError


async def _wait_and_take_back(control: PostgresControl, set_id: str, for_s: float) -> None:
    done = False
    try:
        await asyncio.sleep(for_s)
        while not done:
            done = await _taken_back(control, set_id)
            if not done:
                await asyncio.sleep(_AGAIN_S)
    finally:
        if not done and not await _taken_back(control, set_id):
            tell(f"`pgtop-tune revert --set {set_id}` takes it back when the server answers again")


async def _taken_back(control: PostgresControl, set_id: str) -> bool:
    try:
        reverted, _ = await _to_the_end(control.revert_set(set_id))
    except PgtopError as problem:
        complain(problem)
        return False
    if not reverted:
        tell("taken back already, by somebody else")
    for each in reverted:
        _say_change(each, each.value or "default")
    return True


def _say_change(change: ParameterChange, before: str) -> None:
    note = f"  ({change.message})" if change.message else ""
    say(f"{change.name}: {before} → {change.shown_after}{note}")


async def _to_the_end(work: Awaitable[_T]) -> tuple[_T, bool]:
    """The result, and whether we were asked to stop meanwhile: a change half-made is worse than one made."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task), False
    except asyncio.CancelledError:
        return await task, True
