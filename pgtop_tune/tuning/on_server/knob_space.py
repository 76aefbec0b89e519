"""The knobs of a server as dimensions of a search: which of them, and the values that each may take. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

from pgtop_tune.advice.knobs.catalogue import BY_NAME, GROUPS, KNOBS
from pgtop_tune.advice.knobs.knob import Knob
from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.metrics.setting_risks import RISKS
from pgtop_tune.metrics.value_risks import RiskClass
from pgtop_tune.model.parameter_values import parse, show
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.tuning.on_server.machine_space import (
    MACHINE_GROUPS,
    MACHINE_KNOBS,
    is_machine_group,
    is_machine_knob,
)
from pgtop_tune.tuning.space import Dimension, KnobSpace, log_grid

_RELOADED: Final = frozenset({"user", "superuser", "sighup"})
_RESTART: Final = "postmaster"
"""Values of pg_settings.context."""
_GROUPS: Final = ("checkpoints", "wal", "commit", "background writer", "memory", "planner", "parallel", "I/O")
"""Without --knobs and --group: the knobs of these whose effect shows within minutes."""
_TOLD_BY: Final = frozenset({"throughput", "latency", "budget"})
"""Panes of the knobs that can reach an objective."""
_EACH_WAY: Final = 6


def wanted_knobs(names: Sequence[str], groups: Sequence[str]) -> tuple[Knob, ...]:
    """Knobs of the server by name, or of groups; without either all whose effect shows within minutes.

    Names and groups of the machine are left to `machine_space`.

    Raises:
        UsageProblem: A name or a group that is none.
    """
    for group in groups:
        if group not in GROUPS and not is_machine_group(group):
            raise UsageProblem(f"no knobs stand under {group!r}", _nearest(group, (*GROUPS, *MACHINE_GROUPS)))
    found = []
    for name in names:
        if is_machine_knob(name):
            continue
        knob = BY_NAME.get(name.lower())
        if knob is None:
            raise UsageProblem(f"{name} is no knob that a search knows", _nearest(name, (*BY_NAME, *MACHINE_KNOBS)))
        found.append(knob)
    if names or groups:
        return tuple(dict.fromkeys((*found, *(knob for knob in KNOBS if knob.group in groups))))
    return tuple(knob for knob in KNOBS if knob.group in _GROUPS and not _TOLD_BY.isdisjoint(knob.panes))


def knob_space(
    knobs: Iterable[Knob],
    parameters: Mapping[str, Parameter],
    *,
    allow_restart: bool,
    asked: bool,
) -> KnobSpace:
    """Their dimensions on a server.

    Args:
        parameters: Of the server, by name.
        asked: Each of the knobs was named: what cannot be searched is said also where the server does not have it.
    """
    dimensions, left_out = [], []
    for knob in knobs:
        parameter = parameters.get(knob.name)
        if parameter is None:
            left_out += [(knob.name, "this server does not have it")] if asked else []
            continue
        if why := _why_not(knob, parameter, allow_restart=allow_restart):
            left_out.append((knob.name, why))
            continue
        levels, start, ordered = _levels(knob, parameter)
        if len(levels) < 2:
            left_out.append((knob.name, "it has one value"))
            continue
        dimensions.append(
            Dimension(
                name=knob.name,
                levels=levels,
                start=start,
                ordered=ordered,
                restart=parameter.context == _RESTART,
                group=knob.group,
            )
        )
    return KnobSpace(tuple(dimensions), tuple(left_out))


def _why_not(knob: Knob, parameter: Parameter, *, allow_restart: bool) -> str:
    risks = RISKS.get(knob.name, ())
    if any(risk.loses_data or risk.kind is RiskClass.RUNS_CODE for risk in risks):
        return "it trades durability, or runs code, which no search does: `pgtop-tune ab` judges its values"
    if parameter.context == _RESTART:
        return "" if allow_restart else "it takes a restart: --allow-restart"
    if parameter.context not in _RELOADED:
        return "it reaches new sessions only"
    if parameter.source in ("command line", "override"):
        return f"its value comes from the {parameter.source}"
    return ""


def _levels(knob: Knob, parameter: Parameter) -> tuple[tuple[str, ...], int, bool]:
    """Values as typed, the index of the one in force, and whether neighbours act alike."""
    if parameter.vartype in ("integer", "real"):
        texts, start = _numbers(knob, parameter)
        return (*texts,), start, True
    offered = ("off", "on") if parameter.vartype == "bool" else parameter.enumvals
    words = [word for word in knob.steps if word in offered] or list(offered)
    if "pglz" in words and "on" in words and parameter.setting != "on":
        # The same value under another name.
        words.remove("on")
    if parameter.setting not in words:
        words.insert(0, parameter.setting)
    return (*words,), words.index(parameter.setting), parameter.vartype == "bool"


def _numbers(knob: Knob, parameter: Parameter) -> tuple[list[str], int]:
    integer = parameter.vartype == "integer"
    now = parse(parameter.setting, parameter.unit, integer=integer)
    low = float(parameter.min_val) if parameter.min_val else -math.inf
    high = float(parameter.max_val) if parameter.max_val else math.inf
    if knob.steps:
        steps = {parse(step, parameter.unit, integer=integer) for step in knob.steps}
        numbers = sorted({now, *(step for step in steps if low <= step <= high)})
        if 0.0 in numbers and now != 0.0 and any(value == "0" for value, _ in knob.special):
            # 0 is no small amount there, it is another way: a search would take it for the step below the smallest.
            numbers.remove(0.0)
        numbers = [each for each in numbers if each >= 0.0 or each == now]
    elif now > 0.0:
        numbers, _ = log_grid(now, max(low, now / 2**_EACH_WAY), min(high, now * 2**_EACH_WAY), whole=integer)
    else:
        first = parse(knob.from_zero, parameter.unit, integer=integer) if knob.from_zero else 1.0
        doubled = (first * 2.0**step for step in range(_EACH_WAY))
        numbers = [now, *(each for each in doubled if low <= each <= high and each > now)]
    texts = [show(each, parameter.unit, integer=integer) for each in numbers]
    start = numbers.index(now)
    kept = dict.fromkeys(texts)
    return list(kept), list(kept).index(texts[start])


def _nearest(word: str, known: Iterable[str]) -> str:
    names = list(known)
    near = get_close_matches(word.lower(), names, 1)
    return f"did you mean {near[0]}?" if near else f"one of {', '.join(names[:12])}"
