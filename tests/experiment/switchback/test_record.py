"""Records of experiments are what later predictions stand on; a file that is none harms nobody."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pgtop_tune.experiment.switchback.state import FORMAT, trials_of

RECORD = {
    "format": FORMAT, "ending": "better", "server": "db1:5432", "load": "tpcb-like -c 8", "parameters": [
        {"name": "commit_siblings", "a": "5", "b": "1"}, {"name": "commit_delay", "a": "0", "b": "1000"},
    ],
    "evaluation": {"main": {"id": "tps", "relative": 0.12, "low": 0.05, "high": 0.2, "verdict": "better"}},
    "prediction": {"most": 0.61, "removable_ms": 3.1, "of_ms": 8.2, "waits": [["IO:WalSync", 3.1]]},
    "pairs": [],
}  # fmt: skip


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    directory = tmp_path / "pgtop-tune" / "experiments"
    directory.mkdir(parents=True, mode=0o700)
    return directory


def write(directory: Path, name: str, content: str) -> None:
    path = directory / name
    path.write_text(content)
    path.chmod(0o600)


def test_a_trial_has_its_parameters_in_order_and_what_was_predicted(kept: Path) -> None:
    write(kept, "ab-1.json", json.dumps(RECORD))
    (trial,) = trials_of("db1:5432", "")
    assert trial.names == ("commit_delay", "commit_siblings")
    assert trial.values == (("0", "1000"), ("5", "1"))
    assert (trial.relative, trial.low, trial.high) == (0.12, 0.05, 0.2)
    assert trial.predicted is not None
    assert trial.predicted.most == 0.61
    assert trials_of("another:5432", "") == ()


def test_a_trial_belongs_to_its_server_wherever_that_listens(kept: Path) -> None:
    write(kept, "ab-1.json", json.dumps(RECORD | {"system_identifier": "7300"}))
    assert trials_of("moved:6432", "7300")
    assert trials_of("db1:5432", "")
    assert trials_of("db1:5432", "7301") == ()
    assert trials_of("moved:6432", "") == ()


@pytest.mark.parametrize(
    "content",
    [
        "", "{", "[]", "null", '{"format": "pgtop-tune-ab/1"}', json.dumps(RECORD | {"format": "other/1"}),
        json.dumps(RECORD | {"parameters": [{"name": 1}]}), "\x00" * 100,
        json.dumps(RECORD | {"ending": "not attributable"}), json.dumps(RECORD | {"ending": "generator-bound"}),
        json.dumps(RECORD | {"ending": "changed by someone else"}), json.dumps(RECORD | {"ending": "unheard of"}),
        json.dumps(RECORD | {"evaluation": {"main": {"id": "latency", "relative": 1.0, "low": None, "high": None}}}),
        json.dumps(
            RECORD
            | {"ending": "undecided", "evaluation": RECORD["evaluation"] | {"unattributable": "others took 2 cores"}}
        ),
    ],
)  # fmt: skip
def test_what_is_no_record_of_a_trial_is_left_out(kept: Path, content: str) -> None:
    write(kept, "ab-1.json", content)
    (kept / "ab-2.json").symlink_to("/dev/zero")
    assert trials_of("db1:5432", "") == ()
