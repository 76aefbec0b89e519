"""The latency heatmap: populations that percentiles hide are bands of their own, at every size and without colours."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.metrics.load import P50
from pgtop_tune.metrics.percentiles import ascending
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import LatencySecond
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.heatmap import heatmap_lines
from pgtop_tune.tui.widgets.lines import ASCII, UNICODE, Glyphs, plain_text, width
from tests.support.frames import EPOCH_MS, frame, session_of
from tests.support.latencies import bucket_counts
from tests.support.pictures import assert_picture

GOLDENS = Path(__file__).parents[1] / "goldens"
SIZES = [(76, 22), (116, 38), (196, 48), (246, 68)]


def two_populations(seconds: int = 90, slow: float = 0.4) -> Session:
    """Hits of 0.4 to 0.6 ms and reads of 8 to 12 ms; in the last third one in a thousand takes a second."""
    chance = random.Random(3)

    def change(second: int) -> dict[str, object]:
        bench = frame(second).bench
        assert not isinstance(bench, Unavailable)
        hits = [chance.randrange(400, 600) for _ in range(int(600 * (1 - slow)))]
        reads = [chance.randrange(8_000, 12_000) for _ in range(int(600 * slow))]
        stuck = [1_000_000] if second > 60 and second % 2 else []
        found = [*hits, *reads, *stuck]
        second_of_log = LatencySecond(
            second=EPOCH_MS // 1000 + second, logged=len(found), sum_us=sum(found), max_us=max(found),
            buckets=ascending(bucket_counts(found)),
        )  # fmt: skip
        return {"bench": replace(bench, latencies=(second_of_log,))}

    return session_of(seconds, change=change)


def drawn_rows(session: Session, cells: int, rows: int, glyphs: Glyphs = UNICODE) -> list[str]:
    """The map alone, without scale and shares."""
    return [plain_text(line)[7 : cells - 7] for line in heatmap_lines(session, cells, rows, glyphs)[1:-2]]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_two_populations_are_two_bands_with_nothing_between(size: tuple[int, int], glyphs: Glyphs) -> None:
    session = two_populations()
    filled = [bool(row.strip()) for row in drawn_rows(session, *size, glyphs)]
    bands = sum(1 for before, after in zip([False, *filled], filled, strict=False) if after and not before)
    assert bands == 3, "the third is one transaction in a thousand"
    newest = session.latency.newest()
    assert newest is not None
    assert newest.at(P50) is not None
    lines = heatmap_lines(session, *size, glyphs)
    assert len(lines) == size[1]
    assert {width(line) for line in lines} == {size[0]}
    if glyphs is ASCII:
        assert all(plain_text(line).isascii() for line in lines)


def test_density_is_told_by_characters_not_by_colour_alone() -> None:
    rows = drawn_rows(two_populations(), 116, 38)
    densest = max(rows, key=lambda row: row.count("█"))
    rare = next(row for row in rows if row.strip())
    assert "█" in densest
    assert set(rare.strip()) <= {"·", " "}


def test_shares_at_the_right_add_up() -> None:
    lines = [plain_text(line) for line in heatmap_lines(two_populations(), 116, 38, UNICODE)[1:-1]]
    shares = [float(line.split()[-2]) for line in lines if line.rstrip().endswith("%")]
    assert sum(shares) == pytest.approx(100.0, abs=2.0)


@pytest.mark.parametrize("size", [(76, 22), (196, 48)])
def test_pictures(size: tuple[int, int]) -> None:
    cells, rows = size
    lines = [plain_text(line) for line in heatmap_lines(two_populations(), cells, rows, UNICODE)]
    assert_picture(GOLDENS / f"heatmap-{cells}x{rows}.txt", lines)


def test_without_a_load_it_says_why() -> None:
    (line,) = heatmap_lines(Session(), 76, 22, UNICODE)
    assert "no transaction" in plain_text(line)
