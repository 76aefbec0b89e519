"""Parameters as commands list them: knobs of the catalogue with what the server has and what is advised. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from pgtop_tune.advice.facts import OUT_OF_REACH, Advice
from pgtop_tune.advice.knobs.catalogue import GROUPS, KNOBS
from pgtop_tune.advice.knobs.knob import Knob
from pgtop_tune.advice.listing import advised_value, differs, is_changed, listed_parameters
from pgtop_tune.advice.proposal import advice_for
from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.model.postgres import Parameter

NONE: Final = "-"
_PLACES: Final = {knob.name: place for place, knob in enumerate(KNOBS)}
_OF_THE_PLACE: Final = frozenset(
    {
        "cluster_name",
        "config_file",
        "data_directory",
        "external_pid_file",
        "hba_file",
        "ident_file",
        "listen_addresses",
        "port",
        "unix_socket_directories",
    }
)


class ParameterRow(Struct, frozen=True):
    """A knob, what the server has, and what is advised."""

    knob: Knob
    parameter: Parameter
    advice: Advice | None

    @property
    def changed(self) -> bool:
        """Whether it is other than the server's default, or will be after a restart."""
        return is_changed(self.parameter)

    @property
    def advised(self) -> str:
        """The advised value; "" where there is none."""
        return advised_value(self.advice)

    @property
    def differs(self) -> bool:
        """Whether a value is advised, and it is another one than the server has or will have after a restart."""
        return differs(self.parameter, self.advice)

    @property
    def out_of_reach(self) -> bool:
        """Whether another value is advised than ALTER SYSTEM could give this session."""
        return self.advice is not None and not self.advised and self.parameter.source in OUT_OF_REACH


def rows_of(
    parameters: Sequence[Parameter], advised: Mapping[str, Advice], group: str = ""
) -> tuple[ParameterRow, ...]:
    """The knobs this server has, in the order of the catalogue.

    Args:
        parameters: Of the server.
        advised: Advice by parameter.
        group: Only of this group; "" is all.

    Raises:
        UsageProblem: There is no such group.
    """
    groups = {each.lower(): each for each in GROUPS}
    if group and group.lower() not in groups:
        near = difflib.get_close_matches(group.lower(), groups, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageProblem(f"there is no group {group!r}", f"{hint}groups: {', '.join(GROUPS)}, os")
    return tuple(
        ParameterRow(knob, parameter, advice_for(parameter, advised))
        for knob, parameter in listed_parameters(KNOBS, parameters, advised)
        if not group or knob.group.lower() == group.lower()
    )


def as_json(row: ParameterRow) -> dict[str, Any]:
    """A row as the JSON of `parameters` and `advise` has it; what is not there is null."""
    parameter, advice = row.parameter, row.advice
    return {
        "name": parameter.name,
        "group": row.knob.group,
        "value": parameter.shown,
        "setting": parameter.setting,
        "unit": parameter.unit or None,
        "default": parameter.boot_val,
        "changed": row.changed,
        "context": parameter.context,
        "source": parameter.source,
        "source_file": parameter.sourcefile or None,
        "pending_restart": parameter.pending_restart,
        "pending": parameter.pending,
        "why": row.knob.why,
        "trades": row.knob.trades,
        "moves_with": list(row.knob.moves_with),
        "advice": None if advice is None else advice_json(advice, row.differs),
    }


def advice_json(advice: Advice, differs: bool) -> dict[str, Any]:
    """Advice, and whether it is another value than there is."""
    return {
        "value": advice.value,
        "differs": differs,
        "because": advice.because,
        "low": advice.low or None,
        "high": advice.high or None,
        "opinions": {opinion.who: opinion.value for opinion in advice.opinions},
    }


def table(rows: Sequence[ParameterRow]) -> list[str]:
    """Lines of `parameters`, group by group."""
    cells = [
        (
            row.parameter.name,
            row.parameter.shown or "''",
            row.parameter.unit or NONE,
            row.parameter.context,
            row.parameter.pending or ("restart" if row.parameter.pending_restart else NONE),
            row.advised or NONE,
            row.parameter.sourcefile or row.parameter.source,
        )
        for row in rows
    ]
    head = ("parameter", "value", "unit", "context", "pending", "advice", "source")
    return in_columns(head, cells)


def in_columns(head: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    """A heading and rows below each other, two spaces apart."""
    widths = [max(len(row[column]) for row in (head, *cells)) for column in range(len(head))]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in (head, *cells)
    ]


class ParameterDifference(Struct, frozen=True):
    """A parameter, or a setting of the machine, that is not the same on two sides.

    Attributes:
        a, b: As SHOW or the kernel's file has them; None where a side does not have it or may not see it.
        context: pg_settings.context; "os" for a setting of the machine.
        of_the_place: Whether it names a directory, a file or an address, which differ between any two servers.
    """

    name: str
    a: str | None
    b: str | None
    context: str
    of_the_place: bool

    @property
    def one_sided(self) -> bool:
        """Whether only one side has it: another major, another library, another role."""
        return self.a is None or self.b is None


def differing(a: Mapping[str, Parameter], b: Mapping[str, Parameter]) -> tuple[ParameterDifference, ...]:
    """Parameters that differ, knobs of the catalogue first, then by name."""
    found = []
    for name in sorted({*a, *b}, key=lambda name: (_PLACES.get(name, len(_PLACES)), name)):
        left, right = a.get(name), b.get(name)
        either = left or right
        if either is None or (left is not None and right is not None and left.shown == right.shown):
            continue
        found.append(
            ParameterDifference(
                name=name,
                a=None if left is None else left.shown,
                b=None if right is None else right.shown,
                context=either.context,
                of_the_place=name in _OF_THE_PLACE,
            )
        )
    return tuple(found)
