"""`advise --apply`: the proposal beside what runs and what waits for a restart, a yes, and one change set of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from pgtop_tune.advice.facts import Advice
from pgtop_tune.changes.machine.paste import commands
from pgtop_tune.changes.model.change import SYSTEM, WantedParameter, WantedSetting
from pgtop_tune.cli.advice_text import in_order
from pgtop_tune.cli.changing import ChangeRequest, change
from pgtop_tune.cli.connecting import ConnectionWords, can_ask
from pgtop_tune.cli.looking import Looked, let_in
from pgtop_tune.cli.machine_rows import MachineRow
from pgtop_tune.cli.output import say, tell
from pgtop_tune.cli.parameter_rows import ParameterRow
from pgtop_tune.cli.signals import run_until_signalled
from pgtop_tune.errors import ServerProblem, UsageProblem
from pgtop_tune.host.system_settings import is_sysctl

_REASON = "advise --apply"


class Terms(Struct, frozen=True, kw_only=True):
    """How a proposal is applied.

    Attributes:
        for_s: It goes back by itself after so many seconds; None leaves it.
        dry_run: Only show it.
        restart: The server is restarted once.
        yes: Nobody needs to be asked.
    """

    for_s: float | None = None
    dry_run: bool = False
    restart: bool = False
    yes: bool = False


def settings_to_make(rows: Sequence[MachineRow], *, lasting: bool) -> tuple[WantedSetting, ...]:
    """The machine's half; none at all where a part of it cannot be made, which the commands to paste are shown for.

    Args:
        rows: With what is advised.
        lasting: They are to survive a reboot, which our file of sysctl.d sees to: for sysctls alone.
    """
    made, left = list[MachineRow](), list[MachineRow]()
    for row in in_order([row for row in rows if row.differs]):
        (made if row.setting.writable and (is_sysctl(row.setting.name) or not lasting) else left).append(row)
    if any(is_sysctl(row.setting.name) for row in left):
        made, left = [], [*made, *left]
    if left:
        tell("not part of the change set; as root, in this order:")
    for row in left:
        for command in commands(row.setting.name, row.advised, survive=True):
            tell(f"  {command}")
    return tuple(WantedSetting(row.setting.name, row.advised) for row in made)


def advised_with(settings: Sequence[WantedSetting], looked: Looked) -> Mapping[str, Advice]:
    """Advice for the server beside the machine's half that is made: huge_pages is on only with the pages."""
    if any(each.name == "vm.nr_hugepages" for each in settings):
        return looked.proposal.parameters
    return looked.proposal.server_half()


def apply(words: ConnectionWords, looked: Looked, rows: Sequence[ParameterRow], settings: tuple[WantedSetting, ...],
          terms: Terms) -> int:  # fmt: skip
    """Shows the difference, asks, and makes the change set, the machine's half first.

    Args:
        words: Which server.
        looked: What was seen of it.
        rows: Parameters with what is advised.
        settings: The machine's half.
        terms: How.

    Returns:
        The exit status.

    Raises:
        ServerProblem: The machine cannot carry the sessions there are, or nobody says yes; nothing is changed.
        UsageProblem: There is nobody to ask, or a part is asked for that is not safe without another.
    """
    plan = looked.proposal.plan
    if plan is not None and plan.refused:
        raise ServerProblem(f"the memory rule cannot hold: {plan.refused}", "put a pooler in front first")
    for name, why in looked.proposal.refusals:
        tell(f"left alone, {name}: {why}")
    different = [row for row in rows if row.differs]
    names, now = {row.parameter.name for row in different}, looked.facts.max_connections
    alone = "work_mem" in names and "max_connections" not in names
    if alone and plan is not None and plan.use.max_connections != now:
        raise UsageProblem(
            f"work_mem is advised for max_connections {plan.use.max_connections}, not {now}",
            "leave --group out, or apply --group connections first",
        )
    if looked.machine is None:
        tell("the server runs on another machine: only its half of the proposal is made here")
    if not different and not settings:
        tell("nothing to change: the server has what is advised")
        if looked.facts.pending:
            tell(f"{', '.join(looked.facts.pending)} wait for a restart: `pgtop-tune set --restart` takes them over")
        return 0
    live = looked.facts.machine.live if looked.facts.machine is not None else {}
    for each in settings:
        say(f"{each.name}: {live.get(each.name, '?')} → {each.value}")
    for row in different:
        waits = f" (waits for a restart: {row.parameter.pending})" if row.parameter.pending is not None else ""
        say(f"{row.parameter.name}: {row.parameter.shown}{waits} → {row.advised}")
    if not terms.dry_run and not terms.yes:
        _ask(len(different) + len(settings))
    asked = ChangeRequest(
        wanted=tuple(WantedParameter(row.parameter.name, row.advised, SYSTEM) for row in different),
        for_s=terms.for_s,
        reason=_REASON,
        dry_run=terms.dry_run,
        settings=settings,
        persist=bool(settings) and terms.for_s is None,
        restart=terms.restart and bool(different),
        yes=terms.yes,
    )
    return let_in(words, lambda conninfo: run_until_signalled(change(conninfo, asked)))


def _ask(number: int) -> None:
    if not can_ask():
        raise UsageProblem(f"{number} changes want a yes", "--yes says so where there is no terminal")
    if input(f"make these {number} changes? [y/N] ").strip().lower() not in ("y", "yes"):
        raise ServerProblem("nothing was changed")
