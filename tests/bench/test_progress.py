"""Progress lines of pgbench, as 13 to 18 print them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from pgtop_tune.bench.report import PREFIX, parse_progress
from pgtop_tune.model.bench import BenchProgress

SAMPLES = Path(__file__).parent / "samples"


def progress_of(sample: str, started_epoch_s: float = 0.0) -> list[BenchProgress]:
    lines = (SAMPLES / f"{sample}.stderr").read_text().splitlines()
    parsed = [parse_progress(line, started_epoch_s) for line in lines if line.startswith(PREFIX)]
    assert None not in parsed
    return [line for line in parsed if line is not None]


@pytest.mark.parametrize(
    "sample", sorted(str(path.relative_to(SAMPLES).with_suffix("")) for path in SAMPLES.rglob("*.stderr"))
)
def test_every_progress_line_of_the_samples_is_understood(sample: str) -> None:
    for line in progress_of(sample):
        assert line.elapsed_s > 0
        assert line.tps >= 0


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "progress: 10.0 s, 1234.5 tps, lat 8.097 ms stddev 1.234",
            BenchProgress(10.0, 1234.5, 8.097, 1.234),
        ),
        (
            "progress: 2.0 s, 9.0 tps, lat 0.879 ms stddev 0.312, 3 failed",
            BenchProgress(2.0, 9.0, 0.879, 0.312, failed=3),
        ),
        (
            "progress: 1.0 s, 2228.8 tps, lat 2.765 ms stddev 1.423, 0 failed, lag 1.877 ms, 6790 skipped",
            BenchProgress(1.0, 2228.8, 2.765, 1.423, lag_ms=1.877, skipped=6790),
        ),
        (
            "progress: 1.0 s, 1376.0 tps, lat 1.059 ms stddev 0.632, 2851 failed, 3345 retried, 3346 retries",
            BenchProgress(1.0, 1376.0, 1.059, 0.632, failed=2851, retried=3345, retries=3346),
        ),
        (
            "progress: 4.0 s, 0.0 tps, lat NaN ms stddev -nan, 0 failed, lag -nan ms",
            BenchProgress(4.0, 0.0, 0.0, 0.0, lag_ms=0.0),
        ),
    ],
)
def test_each_version_and_option_has_its_fields(line: str, expected: BenchProgress) -> None:
    assert parse_progress(line) == expected


def test_a_stall_is_a_line_of_zeros_and_not_a_missing_one() -> None:
    assert [line.tps for line in progress_of("stalled_18")][:2] == [0.0, 0.0]


def test_moments_are_turned_into_durations() -> None:
    (line,) = progress_of("epoch_18", started_epoch_s=1795206620.5)
    assert line.elapsed_s == pytest.approx(1.061)


@pytest.mark.parametrize(
    "line", ["", "progress: ", "progress: 1.0 s, tps", "pgbench: error: x", "progress: 1,0 s, 2,0 tps"]
)
def test_anything_else_is_no_progress(line: str) -> None:
    assert parse_progress(line) is None


@given(st.text(max_size=200))
def test_no_text_upsets_the_parser(text: str) -> None:
    assert parse_progress(text) is None
    parse_progress(PREFIX + text)


NUMBER = st.floats(0, 1e12)
COUNT = st.integers(0, 10**15)


@given(NUMBER.filter(lambda s: s < 1e9), NUMBER, NUMBER, NUMBER, COUNT, st.none() | COUNT, st.none() | COUNT)
def test_what_pgbench_would_print_is_read_back(
    elapsed: float, tps: float, lat: float, stddev: float, failed: int, skipped: int | None, retried: int | None
) -> None:
    line = f"progress: {elapsed:.1f} s, {tps:.1f} tps, lat {lat:.3f} ms stddev {stddev:.3f}, {failed} failed"
    if skipped is not None:
        line += f", lag 0.125 ms, {skipped} skipped"
    if retried is not None:
        line += f", {retried} retried, {retried} retries"
    parsed = parse_progress(line)
    assert parsed is not None
    if round(elapsed, 1) < 1e9:
        figures = (elapsed, tps, lat, stddev, failed, None if skipped is None else 0.125, skipped, retried, retried,
                   False)  # fmt: skip
        assert astuple(parsed) == pytest.approx(figures, abs=0.06)
