"""What earlier sessions left in force is said at the start, with what others have set since."""

from __future__ import annotations

from msgspec.structs import replace

from pgtop_tune.advice.knobs.catalogue import KNOBS
from pgtop_tune.changes.model.change import ChangeState, ParameterChange
from pgtop_tune.tui.parameters.actions import left_words
from tests.support.screens import ScriptedParameters, running_screen

WAL = ParameterChange(
    "c1", 0, "max_wal_size", "4GB", "1GB", None, "default", ChangeState.APPLIED, "4GB", by="ann@db1, 7", kept=True
)
MEM = replace(WAL, id="c2", at_ms=60_000, name="work_mem", value="8MB", shown_before="4MB", shown_after="8MB")


def test_the_newest_come_first_with_author_age_and_what_others_set_since() -> None:
    rows = dict(ScriptedParameters().rows)
    rows["max_wal_size"] = replace(rows["max_wal_size"], shown="4GB")
    assert left_words((WAL, MEM), rows, 3_660_000) == (
        "in force from earlier: work_mem 4MB→8MB (ann@db1, 1h00m ago), max_wal_size 1GB→4GB (ann@db1, 1h01m ago)"
        "; set by others since: work_mem is 4MB now"
    )


def test_what_is_pending_has_a_line_of_its_own_and_nothing_left_says_nothing() -> None:
    assert left_words((), {}, 0) == ""
    assert left_words((replace(WAL, kept=False, until_ms=5),), {}, 0) == ""


async def test_it_is_said_once_at_the_start() -> None:
    control = ScriptedParameters(journal=[WAL])
    async with running_screen(parameters=control, knobs=KNOBS) as rig:
        await rig.sees("in force from earlier: max_wal_size 1GB→4GB (ann@db1, ")
        assert len(rig.app._notifications) == 1
