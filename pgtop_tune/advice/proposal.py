"""One value for each parameter of a server and each setting of its machine, computed jointly. Pure.

A proposal is a fixed point: made so, and asked again, it says the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.advice.calculators import OPINIONS, opinions
from pgtop_tune.advice.facts import DERIVED, OUT_OF_REACH, Advice, AdviceFacts
from pgtop_tune.advice.knobs.knob import Knob
from pgtop_tune.advice.knobs.system import knob_of
from pgtop_tune.advice.plan import MemoryPlan, connections, plan
from pgtop_tune.advice.rules import server, wal
from pgtop_tune.advice.rules.system import advise_setting
from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.machine import SystemSetting
from pgtop_tune.model.parameter_values import parse, parse_bool
from pgtop_tune.model.postgres import Parameter

POOL: Final = "vm.nr_hugepages"
ACCOUNTING: Final = "vm.overcommit_memory"
_NO_RULE = "There is no rule for these facts."


class Proposal(Struct, frozen=True, kw_only=True):
    """Advice for a server and its machine.

    Attributes:
        parameters: Advice by parameter; with a value of None where only others have an opinion.
        settings: Advice by setting of the machine; empty where its settings cannot be changed.
        plan: Division of the memory; None where its size is not known.
    """

    parameters: Mapping[str, Advice]
    settings: Mapping[str, Advice] = {}
    plan: MemoryPlan | None = None

    @property
    def refusals(self) -> tuple[tuple[str, str], ...]:
        """Return values that the machine cannot carry, with the arithmetic."""
        if self.plan is None:
            return ()
        rows = (
            ("max_connections", self.plan.refused),
            (POOL, self.plan.pages_refused),
            (ACCOUNTING, self.plan.strict_refused),
        )
        return tuple((name, reason) for name, reason in rows if reason)

    def server_half(self) -> Mapping[str, Advice]:
        """Return the parameters as they may be set one by one.

        huge_pages is on only where the pages are there already, and shared_buffers no more than strict accounting lets
        a server start with.
        """
        half = dict(self.parameters)
        wish, buffers = half.get("huge_pages"), half.get("shared_buffers")
        if self.plan is None or wish is None or buffers is None:
            return half
        if wish.value == "on" and self.plan.pages is not None and not self.plan.reserved:
            because = (
                f"'on' only once {self.plan.pages} huge pages are reserved: `pgtop-tune advise --apply` does both."
            )
            half["huge_pages"] = replace(wish, value="try", because=because)
        if self.plan.small_refused:
            because = f"{buffers.value} would not start: {self.plan.small_refused}. `advise --apply --restart` does."
            half["shared_buffers"] = replace(buffers, value=None, because=because)
        return half

    def machine_half(self) -> Mapping[str, Advice]:
        """Return the settings as they may be made one by one: the server as it is set keeps its huge pages."""
        half = dict(self.without_restart())
        wish, held_pages = half.get(POOL), 0 if self.plan is None else self.plan.pages_held
        if wish is not None and wish.value is not None and int(wish.value) < held_pages:
            because = (
                f"The server holds {held_pages} huge pages; {wish.value} suffice once it holds fewer: `advise "
                f"--apply` does "
                "both."
            )
            half[POOL] = replace(wish, value=str(held_pages), low=str(held_pages), because=because)
        return half

    def without_restart(self) -> Mapping[str, Advice]:
        """Return the settings that leave room to fork while the server has its old memory; others wait."""
        if self.plan is None:
            return self.settings
        entering = {ACCOUNTING: self.plan.strict_waits}
        waiting = entering | dict.fromkeys((POOL, "vm.overcommit_ratio"), self.plan.strict_pauses)
        remedy = "`pgtop-tune advise --apply --restart` applies them in order."
        return {
            name: replace(advice, value=None, because=f"{waiting[name]} {remedy}") if waiting.get(name) else advice
            for name, advice in self.settings.items()
        }


def propose(facts: AdviceFacts) -> Proposal:
    """Return the proposal for a server and its machine."""
    drawn = plan(facts)
    own_advice = {**{name: rule(facts) for name, rule in _RULES.items()}, **_of_memory(facts, drawn)}
    own_advice |= {name: instead for name, instead in facts.unsuitable.items() if not _has_value(own_advice.get(name))}
    names = dict.fromkeys((*own_advice, *OPINIONS))
    advised = ((name, _with_opinions(own_advice.get(name), name, facts)) for name in names)
    live = () if facts.machine is None else facts.machine.live
    settings = ((name, advise_setting(name, facts, drawn)) for name in live)
    return Proposal(
        parameters={name: advice for name, advice in advised if advice is not None},
        settings={name: advice for name, advice in settings if advice is not None},
        plan=drawn,
    )


_RULES = {
    "max_wal_size": wal.max_wal_size,
    "min_wal_size": wal.min_wal_size,
    "checkpoint_timeout": wal.checkpoint_timeout,
    "checkpoint_completion_target": wal.checkpoint_completion_target,
    "wal_keep_size": wal.wal_keep_size,
    "max_slot_wal_keep_size": wal.max_slot_wal_keep_size,
    "wal_compression": wal.wal_compression,
    **server.RULES,
}
_MEMORY_RULES = {
    "shared_buffers": server.shared_buffers,
    "effective_cache_size": server.effective_cache_size,
    "work_mem": server.work_mem,
    "maintenance_work_mem": server.maintenance_work_mem,
    "autovacuum_work_mem": server.autovacuum_work_mem,
    "huge_pages": server.huge_pages,
}
ADVISED = frozenset({*_RULES, *_MEMORY_RULES, "max_connections", "wal_buffers"})
"""Parameters that we have a rule for."""


def _of_memory(facts: AdviceFacts, drawn: MemoryPlan | None) -> dict[str, Advice | None]:
    number = connections(facts) if drawn is None else drawn.use.max_connections
    advice: dict[str, Advice | None] = {
        "max_connections": server.max_connections(facts, drawn, number),
        "wal_buffers": wal.wal_buffers(facts, facts.shared_buffers_bytes if drawn is None else drawn.buffers_bytes),
    }
    if drawn is not None:
        advice |= {name: rule(facts, drawn) for name, rule in _MEMORY_RULES.items()}
    return advice


def _has_value(advice: Advice | None) -> bool:
    return advice is not None and advice.value is not None


def _with_opinions(own_advice: Advice | None, name: str, facts: AdviceFacts) -> Advice | None:
    others_values = opinions(name, facts)
    if own_advice is None:
        return Advice(None, _NO_RULE, opinions=others_values) if others_values else None
    return replace(own_advice, opinions=others_values)


# Advice beside a server's values: whether it could take one, and whether it has it already. Pure.

_NUMBERS: Final = frozenset({"integer", "real"})


def advice_for(parameter: Parameter, advised: Mapping[str, Advice]) -> Advice | None:
    """Return the advice for a parameter of this server; None where nobody says anything.

    The advice has no value where the server was not built for it, as lz4, or ALTER SYSTEM would not change it.
    """
    advice = advised.get(parameter.name)
    if advice is not None and advice.value is not None and not same(parameter, advice.value):
        advice = (
            replace(advice, value=None, because=reason) if (reason := OUT_OF_REACH.get(parameter.source)) else advice
        )
    if advice is None or advice.value is None or parameter.vartype != "enum" or advice.value in parameter.enumvals:
        return advice
    return replace(advice, value=None, because=f"{advice.because} This server was built without {advice.value}.")


def same(parameter: Parameter, value: str) -> bool:
    """Return whether the server has a typed value, or will have it after a restart: 1024MB is 1GB, yes is on."""
    setting = parameter.setting if parameter.pending is None else parameter.pending
    try:
        if parameter.vartype in _NUMBERS:
            integer = parameter.vartype == "integer"
            number = parse(value, parameter.unit, integer=integer)
            if number < 0 and parameter.source in DERIVED and parameter.pending is None:
                return value == parameter.boot_val
            return number == parse(setting, parameter.unit, integer=integer)
        if parameter.vartype == "bool":
            return parse_bool(value) == parse_bool(setting)
    except UsageProblem:
        return False
    return value == setting


OTHERS: Final = "other parameters"
"""The group of those that are no knobs: nobody tunes them, and their values suit no server."""


_NOTHING: Final[Mapping[str, Advice]] = MappingProxyType({})


def listed_parameters(
    knobs: Sequence[Knob], parameters: Iterable[Parameter], advised: Mapping[str, Advice] = _NOTHING
) -> list[tuple[Knob, Parameter]]:
    """Return the knobs this server has, in the order of the catalogue, and other parameters with an advised value."""
    has = {parameter.name: parameter for parameter in parameters}
    names = {knob.name for knob in knobs}
    other_knobs = [
        Knob(name=name, group=OTHERS, why=advice.because, trades="", panes=())
        for name, advice in advised.items()
        if name not in names and advice.value is not None
    ]
    return [(knob, has[knob.name]) for knob in (*knobs, *other_knobs) if knob.name in has]


def listed_settings(settings: Iterable[SystemSetting]) -> list[tuple[Knob, SystemSetting]]:
    """Return the settings that this kernel has and lets us read, in the kernel's order."""
    return [
        (knob, setting)
        for setting in settings
        if not isinstance(setting.live, Unavailable) and (knob := knob_of(setting.name)) is not None
    ]


def is_changed(parameter: Parameter) -> bool:
    """Return whether the value is another than the server's default, or will be after a restart."""
    return parameter.pending_restart or (parameter.setting != parameter.boot_val and parameter.source != "override")


def advised_value(advice: Advice | None) -> str:
    """Return the advised value; "" where there is none."""
    return (advice.value if advice is not None else None) or ""


def differs(parameter: Parameter, advice: Advice | None) -> bool:
    """Return whether another value is advised than the server has or will have after a restart."""
    value = advised_value(advice)
    return bool(value) and not same(parameter, value)
