"""What a server was measured to do at most is there again in the next session, and only for that server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.paths import state_dir
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.postgres import PostgresSample, ServerFacts
from pgtop_tune.model.setup import Measured, MeasuredLimit
from pgtop_tune.sampling.measured_limits import NOT_MEASURED, MeasuredLimits, remember, remembered
from tests.support.frames import frame

FOUND = Measured(
    (MeasuredLimit("wal-flushes", "the WAL device flushes 1940 times a second", 1940.0, "1/s", "ours"),), (), 7
)


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def _server(**other: object) -> ServerFacts:
    postgres = frame(1).postgres
    assert not isinstance(postgres, Unavailable)
    assert not isinstance(postgres.server, Unavailable)
    return replace(postgres.server, **({"system_identifier": "7301"} | other))  # type: ignore[arg-type]


def _sample(server: ServerFacts) -> PostgresSample:
    return PostgresSample(server=server)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_the_next_session_knows_what_was_measured() -> None:
    assert remembered(_server()) == NOT_MEASURED
    assert remember(_server(), FOUND)
    assert remembered(_server()) == FOUND
    assert MeasuredLimits(Clock()).sample(_sample(_server())) == FOUND
    (file,) = (state_dir() / "ceilings").iterdir()
    assert file.stat().st_mode & 0o077 == 0


def test_another_server_and_a_standby_of_the_same_have_their_own() -> None:
    remember(_server(), FOUND)
    for other in (_server(system_identifier="7302"), _server(in_recovery=True)):
        assert remembered(other) == NOT_MEASURED
        assert MeasuredLimits(Clock()).sample(_sample(other)) == NOT_MEASURED


def test_a_session_under_way_takes_a_new_measurement_up() -> None:
    clock = Clock()
    overlay_source = MeasuredLimits(clock)
    assert overlay_source.sample(_sample(_server())) == NOT_MEASURED
    remember(_server(), FOUND)
    clock.now_s = 60.0
    assert overlay_source.sample(_sample(_server())) == FOUND
    assert overlay_source.sample(Unavailable(Reason.NO_ANSWER, "down")) == FOUND
    newer = replace(FOUND, at_ms=8)
    remember(_server(), newer)
    clock.now_s = 120.0
    assert overlay_source.sample(_sample(_server())) == newer
    assert overlay_source.sample(_sample(_server(in_recovery=True))) == NOT_MEASURED


def test_what_the_operator_gave_wins() -> None:
    remember(_server(), FOUND)
    given = replace(FOUND, at_ms=9)
    assert MeasuredLimits(Clock(), given).sample(_sample(_server())) is given


def test_a_server_that_does_not_say_who_it_is_is_not_remembered() -> None:
    for identifier in ("", "../../etc/passwd"):
        assert not remember(_server(system_identifier=identifier), FOUND)
        assert remembered(_server(system_identifier=identifier)) == NOT_MEASURED
    assert not remember(_server(), Measured((), (("everything", "closed"),)))


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{", '{"ceilings": [{"id": 1}], "at_ms": 1}', '{"ceilings": [], "at_ms": "x"}', "[" * 100_000,
        json.dumps({"at_ms": 1, "ceilings": [{"id": "a", "says": "b", "value": "c", "unit": "d", "source": "e"}]}),
    ],
)  # fmt: skip
def test_a_damaged_file_says_how_it_is_made_anew(text: str) -> None:
    remember(_server(), FOUND)
    (file,) = (state_dir() / "ceilings").iterdir()
    file.write_text(text)
    found = remembered(_server())
    assert isinstance(found, Unavailable)
    assert "check --measure" in found.detail


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(blocked))
    with pytest.raises(UsageProblem, match="were not saved"):
        remember(_server(), FOUND)
