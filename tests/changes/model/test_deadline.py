"""A deadline counts on the boot clock: a wall clock that is set neither cuts it short nor puts it off."""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace

from pgtop_tune.changes.model import pending_set as deadline
from pgtop_tune.changes.model.change import ChangeState, ParameterChange
from pgtop_tune.changes.model.pending_set import pending_sets
from pgtop_tune.changes.selection import overdue

DAY_S = 86_400.0
MINUTE_S = 60.0


def pending() -> ParameterChange:
    return ParameterChange(
        id="c", at_ms=0, name="work_mem", value="8MB", shown_before="4MB", auto_conf_before=None,
        source_before="default", state=ChangeState.APPLIED, set_id="s", kept=False, **deadline.deadline_in(MINUTE_S),
    )  # fmt: skip


def clocks_go(monkeypatch: pytest.MonkeyPatch, wall_s: float, boot_s: float) -> None:
    """So many seconds later than they are."""
    wall_ns, boot = time.time_ns, deadline.boot_clock_s
    monkeypatch.setattr("pgtop_tune.changes.model.pending_set.time.time_ns", lambda: wall_ns() + int(wall_s * 1e9))
    monkeypatch.setattr("pgtop_tune.changes.model.pending_set.boot_clock_s", lambda: boot() + boot_s)


@pytest.mark.parametrize("wall_s", [-DAY_S, 0.0, DAY_S])
@pytest.mark.parametrize(("boot_s", "over"), [(0.0, False), (MINUTE_S + 1.0, True)])
def test_a_wall_clock_that_was_set_does_not_count(
    monkeypatch: pytest.MonkeyPatch, wall_s: float, boot_s: float, over: bool
) -> None:
    change = pending()
    clocks_go(monkeypatch, wall_s, boot_s)
    now_ms = time.time_ns() // 1_000_000
    assert list(overdue(now_ms)([change])) == ([change] if over else [])
    (of_set,) = pending_sets([change], {})
    assert (of_set.until_ms - now_ms) / 1000 == pytest.approx(MINUTE_S - boot_s, abs=30.0)


@pytest.mark.parametrize("clock", ["another boot", ""])
def test_after_a_reboot_and_for_a_journal_of_an_older_version_the_wall_clock_counts(
    monkeypatch: pytest.MonkeyPatch, clock: str
) -> None:
    change = replace(pending(), boot_clock=clock)
    clocks_go(monkeypatch, MINUTE_S + 1.0, 0.0)
    assert list(overdue(time.time_ns() // 1_000_000)([change])) == [change]
