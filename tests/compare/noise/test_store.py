"""The noise store: what it keeps, what counts of it, and what it does about files that are not its own."""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
import subprocess
from pathlib import Path

import pytest

from pgtop_tune.compare import noise as store
from pgtop_tune.compare.noise import (
    LoadFingerprint,
    NoiseFloor,
    NoiseGroup,
    group_of,
    known_noise,
    known_spread,
    noise_file,
    problem,
    remember,
)
from pgtop_tune.compare.statistics.effect import RunSpread

LOAD = LoadFingerprint(
    machine="db1, Xeon, 2, 8G", generator="", server="18", load="tpcb-like", scale="10", clients=4, protocol="prepared"
)
FLOOR = NoiseFloor(at_ms=5, seconds=300.0, pair_sd=0.02, pairs=15, autocorrelation_s=3.0, variance=0.002)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "pgtop-tune"


def group(at_ms: int, squares: float, degrees: int) -> NoiseGroup:
    return NoiseGroup(at_ms=at_ms, began_ms=(at_ms, at_ms + 1), spreads={"tps": RunSpread(squares, degrees)})


def test_nothing_is_known_at_first() -> None:
    assert known_noise(LOAD) is None
    assert known_spread(LOAD) == RunSpread()
    assert problem() == ""


def test_groups_of_runs_and_the_floor_of_one_load_come_back_and_no_others() -> None:
    assert remember(LOAD, group(1000, 0.0004, 2)) == ""
    assert remember(LOAD, floor=FLOOR) == ""
    assert remember(LOAD, group(2000, 0.0006, 3)) == ""
    assert known_spread(LOAD) == RunSpread(0.001, 5)
    known = known_noise(LOAD)
    assert known is not None
    assert known.floor == FLOOR
    assert known_spread(LoadFingerprint(**{**as_dict(LOAD), "clients": 8})) == RunSpread()
    assert known_spread(None) == RunSpread()


def as_dict(load: LoadFingerprint) -> dict[str, object]:
    return {name: getattr(load, name) for name in load.__struct_fields__}


def test_only_the_newest_sixteen_degrees_of_freedom_count() -> None:
    remember(LOAD, group(1000, 8.0, 8))
    remember(LOAD, group(2000, 0.0012, 12))
    found = known_spread(LOAD)
    assert found.degrees == 16
    assert found.squares == pytest.approx(0.0012 + 4.0)


def test_runs_that_are_judged_now_are_no_history_of_themselves() -> None:
    remember(LOAD, group(1000, 0.0004, 2))
    remember(LOAD, group(2000, 0.0006, 3))
    assert known_spread(LOAD, without=(2001,)) == RunSpread(0.0004, 2)


def test_a_group_has_squares_of_logarithms_of_the_figures_that_all_of_its_runs_have() -> None:
    found = group_of([{"tps": 100.0, "p99": 2.0}, {"tps": 110.0}], [7, 9])
    assert found is not None
    assert set(found.spreads) == {"tps"}
    assert found.spreads["tps"].degrees == 1
    assert found.spreads["tps"].squares == pytest.approx(math.log(1.1) ** 2 / 2)
    assert found.at_ms == 9
    assert group_of([{"tps": 100.0}], [7]) is None


def test_the_file_is_for_its_user_only(state: Path) -> None:
    remember(LOAD, group(1000, 0.0004, 2))
    assert stat.S_IMODE(noise_file().stat().st_mode) == 0o600
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert json.loads(noise_file().read_bytes())["format"] == store.FORMAT


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\xff" * 50,
        b"[" * 100_000,
        b'{"format": "something else", "loads": []}',
        b'{"format": "pgtop-tune-noise/1"}',
        b'{"format": "pgtop-tune-noise/1", "loads": [1]}',
        b" " * (store._LARGEST_BYTES + 1),
    ],
    ids=["empty", "bytes", "deep", "foreign", "no loads", "no load", "huge"],
)
def test_a_damaged_file_is_not_obeyed_and_moved_aside_by_the_next_writing(state: Path, content: bytes) -> None:
    state.mkdir(mode=0o700)
    noise_file().write_bytes(content)
    assert known_spread(LOAD) == RunSpread()
    assert str(noise_file()) in problem()
    said = remember(LOAD, group(1000, 0.0004, 2))
    assert "noise.damaged" in said
    assert "\n" not in said
    assert known_spread(LOAD) == RunSpread(0.0004, 2)
    assert noise_file().with_suffix(".damaged").read_bytes() == content


def test_figures_that_cannot_be_are_damage() -> None:
    remember(LOAD, group(1000, -1.0, 2))
    assert "not a noise store" in problem()
    assert known_spread(LOAD) == RunSpread()


def test_a_newer_format_stays_as_it_is(state: Path) -> None:
    state.mkdir(mode=0o700)
    noise_file().write_bytes(b'{"format": "pgtop-tune-noise/2", "loads": []}')
    assert "newer" in remember(LOAD, group(1000, 0.0004, 2))
    assert noise_file().read_bytes().count(b"noise/2") == 1


@pytest.mark.root
def test_another_users_file_is_neither_obeyed_nor_replaced(state: Path) -> None:
    remember(LOAD, group(1000, 0.0004, 2))
    os.chown(noise_file(), 12345, 12345)
    assert known_spread(LOAD) == RunSpread()
    assert "belongs to" in problem()
    assert "not saved" in remember(LOAD, group(2000, 0.0004, 2))
    assert noise_file().stat().st_uid == 12345


def test_a_link_is_not_followed(state: Path, tmp_path: Path) -> None:
    state.mkdir(mode=0o700)
    (tmp_path / "elsewhere").write_text("precious")
    noise_file().symlink_to(tmp_path / "elsewhere")
    assert "is a link" in remember(LOAD, group(2000, 0.0004, 2))
    assert (tmp_path / "elsewhere").read_text() == "precious"


def test_the_store_does_not_grow_without_end() -> None:
    for number in range(40):
        remember(LOAD, group(1000 + number, 0.0001, 1))
    known = known_noise(LOAD)
    assert known is not None
    assert len(known.groups) == store._MOST_GROUPS
    assert known.groups[-1].at_ms == 1039


@pytest.mark.root
def test_a_full_disk_leaves_what_was_known_and_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "pgtop-tune").mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        assert remember(LOAD, group(1000, 0.0004, 2)) == ""
        with contextlib.suppress(OSError), (tmp_path / "ballast").open("wb", buffering=0) as ballast:
            while ballast.write(bytes(4096)):
                pass
        said = remember(LOAD, group(2000, 0.0004, 2))
        assert said.endswith("No space left on device")
        assert "not saved" in said
        assert known_spread(LOAD) == RunSpread(0.0004, 2)
        assert [each.name for each in noise_file().parent.iterdir()] == ["noise.json"]
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
