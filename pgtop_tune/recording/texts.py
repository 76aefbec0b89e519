"""Frames without the words of statements: for recordings that are handed to somebody who must not see data.

Literals stand in statements, in messages about them and in lines of the server's log, keys of other programs in the
commands that the server runs. They are left out whole: a recogniser of literals would have to know every dialect of
quoting, and be right each time.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import BenchSample
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import Activity, Parameter, ParameterSample, PostgresSample

LEFT_OUT: Final = Unavailable(Reason.NOT_RECORDED, "recorded with --no-query-text")
_SAID: Final = "left out: recorded with --no-query-text"
_COMMAND: Final = "_command"
"""How names of parameters end that hold a command of a shell: archive_command, restore_command."""
_PLAIN: Final = frozenset(
    {EventKind.CHECKPOINT, EventKind.RESET, EventKind.RESTART, EventKind.ROLE, EventKind.GAP, EventKind.RECORDING}
)
"""Events whose details are our own words; those of others may quote a statement."""


def without_texts(frame: Frame) -> Frame:
    """The frame without texts of statements, the server's log, commands, messages of pgbench and details of events."""
    return replace(
        frame,
        postgres=frame.postgres if isinstance(frame.postgres, Unavailable) else _server(frame.postgres),
        bench=frame.bench if isinstance(frame.bench, Unavailable) else _load(frame.bench),
        events=tuple(map(_event, frame.events)),
    )


def _server(sample: PostgresSample) -> PostgresSample:
    activity = sample.activity
    if isinstance(activity, Activity):
        backends = tuple(each if each.query is None else replace(each, query=None) for each in activity.backends)
        activity = replace(activity, backends=backends)
    parameters = sample.parameters
    if isinstance(parameters, ParameterSample):
        parameters = replace(parameters, parameters=tuple(map(_parameter, parameters.parameters)))
    return replace(sample, activity=activity, statement_texts=LEFT_OUT, server_log=LEFT_OUT, parameters=parameters)


def _parameter(parameter: Parameter) -> Parameter:
    """Where it is empty or switched off, that stays: checks look whether there is a command."""
    if not parameter.name.endswith(_COMMAND):
        return parameter
    values = {name: _command(getattr(parameter, name)) for name in ("setting", "shown", "reset_val", "boot_val")}
    return replace(parameter, **values)


def _command(value: str) -> str:
    return value if value in ("", "(disabled)") else _SAID


def _load(sample: BenchSample) -> BenchSample:
    return replace(sample, run=replace(sample.run, message=_SAID)) if sample.run.message else sample


def _event(event: Event) -> Event:
    if event.kind in _PLAIN:
        return event
    name = event.text.partition(" ")[0]
    is_command = event.kind is EventKind.PARAMETER and name.endswith(_COMMAND)
    return replace(event, text=f"{name} changed" if is_command else event.text, detail="")
