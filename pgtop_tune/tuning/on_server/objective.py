"""Objectives of a search: a figure of a block, or arithmetic over figures; and limits on figures. Pure."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Set
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.experiment.switchback.arms import ArmBlock
from pgtop_tune.metrics.load import P50, P99
from pgtop_tune.tuning.plan import Constraint

_TIMES: Final = MappingProxyType({"us": 0.001, "ms": 1.0, "s": 1000.0})
_SIZES: Final = MappingProxyType({"B": 1.0, "kB": 1024.0, "MB": 1024.0**2})
_SHARES: Final = MappingProxyType({"%": 1.0})
_RATES: Final = MappingProxyType({"/s": 1.0})


class BlockFigure(Struct, frozen=True):
    """A figure of a block that a search knows by name.

    Attributes:
        unit: The unit of its number, as it is typed in a constraint.
        units: Others that may be typed, and how many of `unit` each is.
        higher: More is better.
        of_rate: Whether it has a meaning only under a load with a rate: clients without one send less when it rises.
    """

    name: str
    title: str
    unit: str
    units: Mapping[str, float]
    higher: bool
    of: Callable[[ArmBlock], float | None]
    of_rate: bool = False


FIGURES: Final = (
    BlockFigure("tps", "transactions per second", "/s", _RATES, True, lambda block: block.mean_tps),
    BlockFigure("latency", "mean latency", "ms", _TIMES, False, lambda block: block.figure("latency"), of_rate=True),
    BlockFigure("p50", "latency p50", "ms", _TIMES, False, lambda block: block.quantile(P50), of_rate=True),
    BlockFigure("p99", "latency p99", "ms", _TIMES, False, lambda block: block.quantile(P99), of_rate=True),
    BlockFigure("cpu", "CPU time per transaction", "ms", _TIMES, False, lambda block: block.own_cpu_ms),
    BlockFigure("wal", "WAL per transaction", "B", _SIZES, False, lambda block: block.figure("wal_per_tx")),
    BlockFigure("failed", "failed transactions", "%", _SHARES, False, lambda block: block.figure("failed")),
)
BY_NAME: Final[Mapping[str, BlockFigure]] = MappingProxyType({figure.name: figure for figure in FIGURES})
_COST: Final = "cost"
"""Another name of the figure "cpu"."""
_AT: Final = re.compile(r"\s*(\w+)\s*@\s*([0-9.]+)\s*\Z")
_LIMIT: Final = re.compile(r"\s*(\w+)\s*(<=?|>=?|≤|≥)\s*([0-9.]+)\s*(\S*)\s*\Z")
_SOME: Final = 1.37
_BETTER: Final = 1.1
"""A trial figure, and the factor that makes one better, to see which way an objective goes."""
_LONGEST: Final = 200
_DEEPEST: Final = 20


class Objective(Struct, frozen=True):
    """The figure that decides.

    Attributes:
        typed: The objective as typed.
        rate: Transactions per second that the load is held to; None where the words name none.
        higher: More is better.
    """

    typed: str
    rate: float | None
    higher: bool
    value: Callable[[ArmBlock], float | None]

    @property
    def bounded(self) -> bool:
        """Return whether the waits of a transaction bound it: throughput of clients that wait for nothing else."""
        return self.rate is None and self.value is BY_NAME["tps"].of

    def log_ratio(self, candidate: ArmBlock, against: ArmBlock) -> float | None:
        """Return ln(candidate / against), above 0 where the candidate is better; None without two figures above 0."""
        candidate_value, against_value = self.value(candidate), self.value(against)
        if (
            candidate_value is None
            or against_value is None
            or not (0.0 < candidate_value < math.inf and 0.0 < against_value < math.inf)
        ):
            return None
        ratio = math.log(candidate_value / against_value)
        return ratio if self.higher else -ratio


def objective(typed: str, rate: float | None = None) -> Objective:
    """Parse an objective: "tps", "p99@500" (per second), "cost", or arithmetic over figures.

    Examples of arithmetic: "tps / cpu", "min p99 + 0.1 * wal".

    Arithmetic is made as large as possible, behind "min" as small as possible.

    Args:
        rate: The rate of the load, where it has one.

    Raises:
        UsageProblem: No such figure, no arithmetic, a latency without a rate, throughput with one, or arithmetic that
            no better figure makes better.
    """
    if match := _AT.match(typed):
        figure, held_rate = _figure(match[1]), _number(match[2], typed)
        if rate is not None and rate != held_rate:
            raise UsageProblem(f"{typed}: the load has another rate, {rate:g}", "leave --rate out")
        _check_not_held({figure.name}, held_rate)
        return Objective(typed, held_rate, figure.higher, figure.of)
    text = typed.strip()
    if text in BY_NAME or text == _COST:
        figure = _figure(text)
        if figure.of_rate and rate is None:
            raise UsageProblem(
                f"{text} means little for a load without a rate: its clients send less when the server is slower",
                f"pass --objective {text}@RATE, for example {text}@500",
            )
        _check_not_held({figure.name}, rate)
        return Objective(typed, rate, figure.higher, figure.of)
    return _arithmetic(typed, rate)


def constraint(text: str) -> Constraint:
    """Parse a constraint such as "p99 < 20ms", "tps >= 1000", "wal < 8kB".

    Raises:
        UsageProblem: The text is no constraint.
    """
    match = _LIMIT.match(text)
    if match is None:
        raise UsageProblem(
            f"{text!r} is not a constraint", f"write 'p99 < 20ms', for example; figures: {', '.join(BY_NAME)}"
        )
    figure, number = _figure(match[1]), _number(match[3], text)
    unit = match[4] or figure.unit
    if unit not in figure.units:
        raise UsageProblem(f"{text!r}: {figure.name} has no unit {unit!r}", f"one of {', '.join(figure.units)}")
    limit = number * figure.units[unit]
    if match[2] in ("<", "<=", "≤"):
        return Constraint(figure=figure.name, most=limit, unit=figure.unit)
    return Constraint(figure=figure.name, least=limit, unit=figure.unit)


def _figure(name: str) -> BlockFigure:
    figure = BY_NAME.get("cpu" if name == _COST else name)
    if figure is None:
        raise UsageProblem(f"no figure is called {name!r}", f"figures: {', '.join((*BY_NAME, _COST))}")
    return figure


def _number(text: str, whole_text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0.0 < number < math.inf:
        raise UsageProblem(f"{whole_text!r}: {text} is not a number above 0", "write p99@500, for example")
    return number


# Arithmetic. The text is foreign: only numbers, names of figures and + - * / are evaluated.

_OPERATORS: Final = MappingProxyType(
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.Div: operator.truediv,
    }
)


def _arithmetic(typed: str, rate: float | None) -> Objective:
    text, lower = typed.strip(), False
    for word, is_min in (("min ", True), ("max ", False)):
        if text.startswith(word):
            text, lower = text.removeprefix(word).strip(), is_min
    hint = f"figures: {', '.join((*BY_NAME, _COST))}; for example 'tps / cpu' or 'min p99 + 0.1 * wal'"
    if len(text) > _LONGEST:
        raise UsageProblem("the objective is too long", hint)
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UsageProblem(f"{typed!r} is not an objective", hint) from None
    names = _checked(tree, typed, hint, _DEEPEST)
    if not names:
        raise UsageProblem(f"{typed!r} contains no figure", hint)
    if rate is None and (figures_of_rate := sorted(name for name in names if _figure(name).of_rate)):
        raise UsageProblem(
            f"{' and '.join(figures_of_rate)} mean little for a load without a rate", "set a rate with --rate"
        )
    _check_not_held(names, rate)
    _check_direction(tree, names, typed, lower=lower)

    def value(block: ArmBlock) -> float | None:
        figures = {name: _figure(name).of(block) for name in names}
        known_figures = {name: figure for name, figure in figures.items() if figure is not None}
        return _value_or_none(tree, known_figures) if len(known_figures) == len(figures) else None

    return Objective(typed, rate, not lower, value)


def _check_not_held(names: Set[str], rate: float | None) -> None:
    """Raise UsageProblem where the load's rate fixes the objective, so that no setting changes it."""
    if names == {"tps"} and rate is not None:
        raise UsageProblem(
            f"the load is held to {rate:g} transactions per second, which no setting changes",
            "leave the rate out, or --objective p99, latency or cost",
        )


def _check_direction(tree: ast.expr, names: Set[str], typed: str, *, lower: bool) -> None:
    """Raise UsageProblem where no better figure makes the objective better: a search would find the worst."""
    base = {name: _SOME + index for index, name in enumerate(sorted(names))}
    before, sign = _value_or_none(tree, base), -1.0 if lower else 1.0
    if before is None:
        raise UsageProblem(f"{typed!r} divides by zero", "write 'tps / cpu', for example")
    moves = []
    for name in names:
        better = base[name] * (_BETTER if _figure(name).higher else 1.0 / _BETTER)
        after = _value_or_none(tree, {**base, name: better})
        moves.append(0.0 if after is None else sign * (after - before))
    if max(moves) > 0.0:
        return
    if min(moves) < 0.0:
        size, remedy = ("small", "remove min") if lower else ("large", "put min before it")
        raise UsageProblem(
            f"{typed!r} would be made as {size} as possible, but better figures make it worse",
            f"{remedy}: 'tps / cpu', 'min p99 + 0.1 * wal'",
        )
    raise UsageProblem(f"{typed!r} does not depend on a figure", "write 'tps / cpu', for example")


def _checked(node: ast.expr, typed: str, hint: str, depth: int) -> set[str]:
    """Return the names of the figures in an expression, after a check that it is arithmetic."""
    if depth and isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _checked(node.left, typed, hint, depth - 1) | _checked(node.right, typed, hint, depth - 1)
    if isinstance(node, ast.Name):
        _figure(node.id)
        return {node.id}
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return set()
    raise UsageProblem(f"{typed!r} is not an objective: use only + - * / ( ), numbers and figures", hint)


def _value_or_none(tree: ast.expr, figures: Mapping[str, float]) -> float | None:
    try:
        return _value(tree, figures)
    except (ZeroDivisionError, OverflowError):
        return None


def _value(node: ast.expr, figures: Mapping[str, float]) -> float:
    if isinstance(node, ast.BinOp):
        return float(_OPERATORS[type(node.op)](_value(node.left, figures), _value(node.right, figures)))
    if isinstance(node, ast.Name):
        return figures[node.id]
    assert isinstance(node, ast.Constant)
    return float(str(node.value))
