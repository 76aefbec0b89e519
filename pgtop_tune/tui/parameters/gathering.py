"""The rows of the list, put together from the server's answer, frames, journals, machine and next load. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from pgtop_tune.advice.facts import AdviceFacts, MachineLook, machine_of
from pgtop_tune.advice.gather import Beside, facts_of
from pgtop_tune.advice.knobs.knob import Knob
from pgtop_tune.advice.knobs.system import GROUPS
from pgtop_tune.advice.listing import listed_parameters, listed_settings
from pgtop_tune.advice.proposal import Proposal, advice_for
from pgtop_tune.advice.rules.wal import steady
from pgtop_tune.changes.model.change_set import Change
from pgtop_tune.health.unsuitable import unsuitable
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.tui.parameters.row import SettingRow, of_machine


def server_facts(
    interval: Interval | None, look: MachineLook | Unavailable, before: AdviceFacts | None = None
) -> AdviceFacts | None:
    """What advice is derived from; None before the server was seen.

    Args:
        interval: Frames of the server.
        look: At its machine.
        before: What the advice that is shown was derived from: it does not change with every tick.
    """
    machine = None if isinstance(look, Unavailable) else machine_of(look)
    facts = (
        None
        if interval is None
        else facts_of(interval, Beside(machine=machine, unsuitable=unsuitable(interval.frames)))
    )
    return None if facts is None else steady(before, facts)


def advised_anew(row: SettingRow, facts: AdviceFacts, proposal: Proposal) -> SettingRow:
    """The row with what a proposal has for it, and with the value that waits for a restart."""
    if row.setting is not None:
        return replace(row, advice=proposal.machine_half().get(row.name))
    parameter = replace(row.parameter, pending=facts.pending.get(row.name))
    return replace(row, parameter=parameter, advice=advice_for(parameter, proposal.server_half()))


def machine_rows(look: MachineLook, in_force: Sequence[Change]) -> list[SettingRow]:
    """The settings of the machine that this kernel has, group by group.

    Args:
        look: At the machine.
        in_force: Changes that the journals hold, oldest first.
    """
    newest = {change.name: change for change in in_force}
    rows = [
        SettingRow(of_machine(setting), knob, setting=setting, change=newest.get(setting.name))
        for knob, setting in listed_settings(look.settings)
    ]
    return sorted(rows, key=lambda row: GROUPS.index(row.knob.group))


def parameter_rows(
    knobs: Sequence[Knob],
    parameters: Sequence[Parameter],
    in_force: Sequence[Change],
    next_load: Mapping[str, str],
) -> list[SettingRow]:
    """The knobs this server has, in the order of the catalogue.

    Args:
        knobs: The catalogue.
        parameters: Of the server.
        in_force: Changes that the journal holds, oldest first.
        next_load: What sessions of the next load begin with, by name.
    """
    newest = {change.name: change for change in in_force}
    return [
        SettingRow(parameter, knob, change=newest.get(knob.name), next_load=next_load.get(knob.name))
        for knob, parameter in listed_parameters(knobs, parameters)
    ]
