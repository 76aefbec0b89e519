"""What PostgreSQL 19 changed for the check: the level of the log may be one for each kind of process."""

from __future__ import annotations

import pytest

from pgtop_tune.health.judge import judge
from pgtop_tune.health.registry import chosen
from tests.support.health_facts import spoilt


@pytest.mark.parametrize("levels", ["debug2", "warning, checkpointer:debug1"])
def test_a_debug_level_of_any_process_is_found(levels: str) -> None:
    report = judge(chosen(["LOG-03"], ()), spoilt({"log_min_messages": levels}, major=19))
    assert [finding.subject for _, finding in report.findings] == ["log_min_messages"]
