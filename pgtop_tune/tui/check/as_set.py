"""Tagged findings as a set of changes: the parameters that mend them as rows of the parameter list. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from pgtop_tune.advice.knobs.catalogue import BY_NAME
from pgtop_tune.advice.knobs.knob import Knob
from pgtop_tune.advice.machine import MachineLook
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.tui.check.table import CheckRow
from pgtop_tune.tui.parameters.gathering import machine_rows
from pgtop_tune.tui.parameters.row import PanelRow, Staged


def wanted_values(tagged: Sequence[CheckRow], *, of_machine: bool) -> dict[str, tuple[str, CheckRow]]:
    """Value and finding by name of the parameter, or of the setting of the machine; the worst finding has the say."""
    found: dict[str, tuple[str, CheckRow]] = {}
    for row in tagged:
        if row.fix is not None and row.fix.parameter is not None and row.fix.of_machine is of_machine:
            name, value = row.fix.parameter
            found.setdefault(name, (value, row))
    return found


def staged_rows(
    tagged: Sequence[CheckRow], parameters: Sequence[Parameter], machine: MachineLook | Unavailable
) -> tuple[PanelRow, ...]:
    """What is to be changed; values that are in force already are left out.

    Args:
        tagged: Rows with their fixes.
        parameters: Of the server, as it has them now.
        machine: Its settings.
    """
    wanted = wanted_values(tagged, of_machine=False)
    rows = [PanelRow(each, _knob(each.name, wanted)) for each in parameters if each.name in wanted]
    of_machine = wanted_values(tagged, of_machine=True)
    if not isinstance(machine, Unavailable):
        rows += [row for row in machine_rows(machine, None, ()) if row.name in of_machine]
    values = wanted | of_machine
    staged = [replace(row, staged=row.meaning(Staged(values[row.name][0]))) for row in rows]
    return tuple(row for row in staged if row.staged is not None)


def left_out(tagged: Sequence[CheckRow], staged: Sequence[PanelRow]) -> int:
    """Tagged findings that are not in the set: to be mended by hand, elsewhere, or in force already."""
    names = {row.name for row in staged}
    mended = (row.fix.parameter for row in tagged if row.fix is not None)
    return sum(1 for parameter in mended if parameter is None or parameter[0] not in names)


def _knob(name: str, wanted: Mapping[str, tuple[str, CheckRow]]) -> Knob:
    check = wanted[name][1].check
    return BY_NAME.get(name) or Knob(name=name, group=check.group, why=check.why, trades="", panes=())
