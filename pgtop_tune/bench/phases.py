"""The phases of a load (--phases): words of the operator to levels of clients and rate, one after the other. Pure.

    ramp 8..64 over 5m, hold 10m, burst x3 for 30s every 2m, pause 1m

A burst belongs to the hold before it and ends each of its periods. A ramp goes up or down in stairs, because pgbench
keeps its clients and its rate for as long as it runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.units import COUNTS, quantity, seconds
from pgtop_tune.model.bench import LoadLevel, LoadSpec

MOST_STAIRS: Final = 20
SHORTEST_STAIR_S: Final = 5.0
"""Of a stair, about two seconds go into starting its clients."""
MOST_STEPS: Final = 200
_PER_SECOND: Final = "/s"
_MOST: Final = 1e7


class LoadStep(Struct, frozen=True):
    """A level of a load and its length.

    Attributes:
        phase: Number of its phase and the words of the operator: "2: hold 10m". A burst has its own.
    """

    phase: str
    seconds: float
    level: LoadLevel


class _Phase(Struct, frozen=True):
    """A phase as typed.

    Attributes:
        number: From 1.
        at: Its first character in the text, from 1.
    """

    number: int
    text: str
    at: int

    @property
    def name(self) -> str:
        return f"{self.number}: {self.text}"

    def refuse(self, reason: str, hint: str) -> NoReturn:
        raise UsageProblem(f"--phases, character {self.at}: {self.text!r} {reason}", hint)

    def length_s(self, typed: str, least_s: float = 1.0) -> float:
        try:
            length_s = seconds(typed)
        except UsageProblem as problem:
            self.refuse(f"has a wrong time: {problem.message}", problem.hint)
        if length_s < least_s:
            self.refuse(f"is too short: {typed}", f"pass at least {least_s:g}s")
        return length_s

    def level(self, typed: str, before: LoadLevel, *, as_rate: bool = False) -> LoadLevel:
        """Return the level that a number means: clients, or with /s a rate."""
        word = typed.removesuffix(_PER_SECOND)
        value = quantity(word, COUNTS)
        if value is None or not 0 < value <= _MOST:
            self.refuse(f"has no number above 0: {typed!r}", "write 64 for clients, 500/s for a rate")
        if as_rate or typed.endswith(_PER_SECOND):
            return replace(before, rate_per_s=value)
        if value != int(value):
            self.refuse(f"has {typed} clients", "clients are whole numbers; a rate ends in /s")
        return replace(before, clients=int(value))


def load_steps(text: str, start: LoadLevel) -> tuple[LoadStep, ...]:
    """Return the steps of the phases.

    Args:
        start: The level before the first phase: -c and -R.

    Raises:
        UsageProblem: A phase is none; its sentence has the place.
    """
    steps: list[LoadStep] = []
    level, holds = start, False
    for phase in _phases(text):
        word = phase.text.partition(" ")[0]
        form = _FORMS.get(word)
        if form is None:
            phase.refuse("is no phase", f"a phase is {', '.join(_FORMS)}, as in {_EXAMPLE}")
        match = form.pattern.fullmatch(phase.text)
        if match is None:
            phase.refuse(f"is no {word}", f"write {form.example}")
        if word == "burst":
            if not holds:
                phase.refuse("has no hold before it", f"a burst interrupts a hold: {_EXAMPLE}")
            steps[-1:] = _bursts(phase, match, steps[-1])
        else:
            steps += form.steps(phase, match, level)
        holds = word == "hold"
        if not steps[0].level.clients:
            phase.refuse("is the first phase, and a load begins with clients", "move the pause behind another phase")
        if word != "pause":
            level = steps[-1].level if word != "burst" else level
        if len(steps) > MOST_STEPS:
            phase.refuse(f"makes more than {MOST_STEPS} changes of the load", "pass fewer bursts")
    return tuple(steps)


def steps_of(spec: LoadSpec) -> tuple[LoadStep, ...]:
    """Return the steps of a load; () of one that stays. Raises UsageProblem as `load_steps`."""
    return load_steps(spec.phases, spec.level) if spec.phases else ()


def peak_clients(spec: LoadSpec) -> int:
    """Return the most clients of a load at once. Raises UsageProblem as `load_steps`."""
    return max((step.level.clients for step in steps_of(spec)), default=spec.clients)


def _phases(text: str) -> Iterator[_Phase]:
    at = 1
    for number, part in enumerate(text.split(","), 1):
        phase_text = " ".join(part.split())
        phase = _Phase(number, phase_text, at + len(part) - len(part.lstrip()))
        if not phase_text:
            phase.refuse("is empty", f"separate phases by commas: {_EXAMPLE}")
        yield phase
        at += len(part) + 1


def _ramp(phase: _Phase, match: re.Match[str], before: LoadLevel) -> list[LoadStep]:
    as_rate = any(word.endswith(_PER_SECOND) for word in match.groups()[:2])
    first, last = (phase.level(word, before, as_rate=as_rate) for word in match.groups()[:2])
    length_s = phase.length_s(match[3], 2 * SHORTEST_STAIR_S)
    stairs = min(MOST_STAIRS, int(length_s / SHORTEST_STAIR_S))
    if not as_rate:
        stairs = min(stairs, abs(last.clients - first.clients) + 1)
    if first == last:
        phase.refuse("begins where it ends", "write hold for a load that stays")
    return [
        LoadStep(phase.name, length_s / stairs, _between(first, last, number / (stairs - 1)))
        for number in range(stairs)
    ]


def _between(first: LoadLevel, last: LoadLevel, share: float) -> LoadLevel:
    clients = round(first.clients + (last.clients - first.clients) * share)
    if first.rate_per_s is None or last.rate_per_s is None:
        return replace(first, clients=clients)
    return LoadLevel(clients, first.rate_per_s + (last.rate_per_s - first.rate_per_s) * share)


def _hold(phase: _Phase, match: re.Match[str], before: LoadLevel) -> list[LoadStep]:
    level = before if match[2] is None else phase.level(match[2], before)
    return [LoadStep(phase.name, phase.length_s(match[1]), level)]


def _pause(phase: _Phase, match: re.Match[str], before: LoadLevel) -> list[LoadStep]:
    return [LoadStep(phase.name, phase.length_s(match[1]), replace(before, clients=0))]


def _bursts(phase: _Phase, match: re.Match[str], hold: LoadStep) -> list[LoadStep]:
    """Return a hold with its bursts: each period ends with one."""
    times, burst_s, period_s = float(match[1]), phase.length_s(match[2]), phase.length_s(match[3])
    if not 0.01 <= times <= 1000.0:
        phase.refuse(f"has the factor {match[1]}", "pass a factor such as x3")
    if burst_s >= period_s or period_s > hold.seconds:
        phase.refuse("does not fit into the hold before it", f"the hold lasts {hold.seconds:g}s; {_EXAMPLE}")
    level = hold.level
    raised = (
        replace(level, clients=max(1, round(level.clients * times)))
        if level.rate_per_s is None
        else replace(level, rate_per_s=level.rate_per_s * times)
    )
    steps, left_s = [], hold.seconds
    while left_s > 0:
        for step in (replace(hold, seconds=period_s - burst_s), LoadStep(phase.name, burst_s, raised)):
            if left_s > 0:
                steps.append(replace(step, seconds=min(step.seconds, left_s)))
                left_s -= step.seconds
        if len(steps) > MOST_STEPS:
            break
    return steps


class _Form(Struct, frozen=True):
    """A kind of phase."""

    pattern: re.Pattern[str]
    example: str
    steps: Callable[[_Phase, re.Match[str], LoadLevel], list[LoadStep]]


_FORMS: Final = {
    "ramp": _Form(
        re.compile(r"ramp (\S+?)\.\.(\S+) over (\S+)"), "ramp 8..64 over 5m, or ramp 100..800/s over 5m", _ramp
    ),
    "hold": _Form(re.compile(r"hold (\S+)(?: at (\S+))?"), "hold 10m, or hold 10m at 32", _hold),
    "burst": _Form(
        re.compile(r"burst x(\d{1,4}(?:\.\d{1,3})?) for (\S+) every (\S+)"),
        "burst x3 for 30s every 2m",
        lambda phase, match, before: [],
    ),
    "pause": _Form(re.compile(r"pause (\S+)"), "pause 1m", _pause),
}
_EXAMPLE: Final = "hold 10m, burst x3 for 30s every 2m"
