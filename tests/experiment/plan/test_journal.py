"""The journal of an experiment: what it says after a crash anywhere, and who may write it."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import to_builtins

from pgtop_tune.base.errors import JournalProblem
from pgtop_tune.experiment.plan.results import (
    FILE,
    CellResult,
    ExperimentLog,
    MadeData,
    complete,
    entries,
    is_running,
    outcome_of,
    read_entries,
)
from tests.support.plans import bound_text


def written(directory: Path) -> bytes:
    plan = bound_text('profiles = ["select-only", "tpcb-like"]\n')
    with ExperimentLog(directory) as log:
        log.write("plan", name="t", hash="h", began_ms=1, plan=to_builtins(plan))
        log.write("database", name="own")
        log.write("set_began", set_id="s1")
        log.write("made", data=to_builtins(MadeData(stage=1, arm="as it is", scale=1, steps_s=(("vacuum", 0.1),))))
        log.write("cell_began", number=1)
        log.write("cell", result=to_builtins(CellResult(number=1, tps=10.0, doubts=("a",))))
        log.write("cell_began", number=2)
        log.write("cell", result=to_builtins(CellResult(number=2, reason="no room")))
    return (directory / FILE).read_bytes()


def test_it_says_again_what_was_written(tmp_path: Path) -> None:
    written(tmp_path / "e")
    found = outcome_of(read_entries(tmp_path / "e"), "e")
    assert found is not None
    assert found.plan == bound_text('profiles = ["select-only", "tpcb-like"]\n')
    assert found.results[1].tps == 10.0
    assert found.results[2].reason == "no room"
    assert (found.database, found.sets, found.made[1].steps_s) == ("own", ("s1",), (("vacuum", 0.1),))
    assert (found.complete, found.running, found.ended) == (True, None, "")


def test_a_line_cut_off_at_any_byte_is_as_if_it_had_not_been_begun(tmp_path: Path) -> None:
    whole = written(tmp_path / "e")
    last = whole[: whole.rstrip(b"\n").rfind(b"\n") + 1]
    for end in range(len(last), len(whole)):
        assert complete(whole[:end]) == len(last)
        found = outcome_of(tuple(entries(whole[:end])), "e")
        assert found is not None
        assert (set(found.results), found.running) == ({1}, 2)


def test_the_next_who_writes_cuts_it_off(tmp_path: Path) -> None:
    whole = written(tmp_path / "e")
    for cut in (1, 5, 40):
        (tmp_path / "e" / FILE).write_bytes(whole[:-cut])
        with ExperimentLog(tmp_path / "e") as log:
            log.write("cell", result=to_builtins(CellResult(number=2, tps=5.0)))
        found = outcome_of(read_entries(tmp_path / "e"), "e")
        assert found is not None
        assert found.results[2].tps == 5.0


@pytest.mark.parametrize("rubbish", [b"{", b"[]\n", b"\xff\xfe\n", b"\0\0\0\0", b"null\n"])
def test_what_a_crash_leaves_behind_the_last_line_does_not_count(tmp_path: Path, rubbish: bytes) -> None:
    whole = written(tmp_path / "e")
    assert complete(whole + rubbish) == len(whole)


def test_one_process_at_a_time_writes_it(tmp_path: Path) -> None:
    directory = tmp_path / "e"
    with ExperimentLog(directory):
        assert is_running(directory)
        with pytest.raises(JournalProblem, match="another process runs this experiment"):
            ExperimentLog(directory)
    assert not is_running(directory)


def test_an_empty_journal_is_no_experiment() -> None:
    assert outcome_of((), "e") is None
