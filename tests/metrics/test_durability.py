"""Values that can lose data: found in the frames, told in numbers, and a stain on every result."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.durability import at_risk, risks
from pgtop_tune.model.events import EventKind
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import DatabaseCounters, Parameter, ParameterSample, PostgresSample
from pgtop_tune.runtime.experiment_control import ArmValues
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.session import Session
from pgtop_tune.sampling.happenings import events_between
from pgtop_tune.tui.scene.banners import danger_line, switched_danger
from pgtop_tune.tui.widgets.lines import UNICODE, plain_text, width
from tests.support.experiments import RUNNING
from tests.support.frames import PARAMETERS, frame
from tests.support.frames import parameter as row

SAFE = {"fsync": "on", "synchronous_commit": "on", "synchronous_standby_names": "", "wal_writer_delay": "200"}


def parameters(**values: str) -> tuple[Parameter, ...]:
    given = SAFE | values
    return (*PARAMETERS, *(row(name, value, value) for name, value in given.items()))


def with_parameters(second: int, **values: str) -> Frame:
    seen = frame(second)
    sample = ParameterSample(float(second), parameters(**values))
    assert isinstance(seen.postgres, PostgresSample)
    assert isinstance(seen.postgres.database, DatabaseCounters)
    counted = replace(seen.postgres.database, databases=3)
    return replace(seen, postgres=replace(seen.postgres, parameters=sample, database=counted))


def test_the_loss_is_told_in_numbers_of_now() -> None:
    seen = Interval([with_parameters(second, synchronous_commit="off", fsync="off") for second in range(3)])
    fsync, commit = at_risk(seen)
    assert (fsync.name, commit.name, commit.value) == ("fsync", "synchronous_commit", "off")
    assert fsync.loss == "all 3 databases, after a crash of the machine"
    assert "up to 600 ms of acknowledged commits, now about " in commit.loss


@pytest.mark.parametrize(("standbys", "names"), [("", []), ("s1", ["synchronous_commit"])])
def test_a_commit_that_waits_for_no_standby_is_a_risk_only_where_there_is_one(standbys: str, names: list[str]) -> None:
    found = risks(parameters(synchronous_commit="local", synchronous_standby_names=standbys))
    assert [risk.name for risk in found] == names


def test_the_tape_and_with_it_the_recording_learns_when_it_begins_and_when_it_ends() -> None:
    safe, off = with_parameters(1), with_parameters(2, fsync="off")
    begun = [event for event in events_between(safe, off) if event.kind is EventKind.WARNING]
    assert [event.text for event in begun] == ["fsync=off can lose data"]
    assert "whole cluster" in begun[0].detail
    ended = [event for event in events_between(off, with_parameters(3)) if event.kind is EventKind.WARNING]
    assert [event.text for event in ended] == ["fsync is safe again"]


def test_the_switches_of_an_experiment_are_told_by_the_experiment_alone() -> None:
    safe, off = with_parameters(1), with_parameters(2, fsync="off", synchronous_commit="off")
    told = [event.text for event in events_between(safe, off, {"synchronous_commit"})]
    assert told == ["fsync=off can lose data"]
    assert events_between(off, with_parameters(3, fsync="off"), {"synchronous_commit"}) == ()


def test_the_banner_of_an_experiment_stays_while_the_safe_arm_is_in_force() -> None:
    unsafe = replace(RUNNING, values=(ArmValues("synchronous_commit", "on", "off"),), arm="A")
    line = switched_danger(unsafe, 80, UNICODE)
    assert line is not None
    assert plain_text(line).startswith(" ⚠ by turns: synchronous_commit=off can lose acknowledged commits")
    assert width(line) == 80
    assert switched_danger(RUNNING, 80, UNICODE) is None
    assert switched_danger(replace(unsafe, under_way=False), 80, UNICODE) is None
    assert switched_danger(replace(unsafe, kind="plan P1"), 80, UNICODE) is None


@pytest.mark.parametrize("cells", [60, 80, 200])
def test_the_banner_comes_from_the_frames_and_fits_the_screen(cells: int) -> None:
    session = Session()
    session.apply(Step((with_parameters(1),)))
    assert danger_line(session, cells, UNICODE) is None
    session.apply(Step((with_parameters(2, fsync="off"),)))
    line = danger_line(session, cells, UNICODE)
    assert line is not None
    assert width(line) == cells
    assert plain_text(line).startswith(" ⚠ fsync=off can lose ")
    session.apply(Step((with_parameters(3),)))
    assert danger_line(session, cells, UNICODE) is None
