"""Lines of the transaction log."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.bench.log_seconds import LogLayout, Parsed, SecondPart, parse_lines
from tests.bench.record_samples import RUNS, SAMPLES

RESULTS = st.one_of(
    st.integers(0, 10**9).map(str), st.sampled_from(("failed", "skipped", "serialization", "deadlock", "other"))
)
SECONDS = st.integers(1_700_000_000, 1_700_000_009)


def by_second(parsed: Parsed) -> dict[int, Counter[int]]:
    grouped: dict[int, Counter[int]] = {}
    for part in parsed.parts:
        if part.latencies:
            grouped.setdefault(part.second, Counter()).update(part.latencies)
    return grouped


def count(parsed: Parsed, *words: str) -> int:
    return sum(part.word_counts.get(word, 0) for part in parsed.parts for word in words)


def text(rows: list[tuple[str, int]], more: str = "") -> bytes:
    return "".join(f"0 {n} {result} 0 {second} 123456{more}\n" for n, (result, second) in enumerate(rows)).encode()


def test_real_lines_of_15_and_18() -> None:
    parsed = parse_lines(b"0 1 3187 0 1795206582 670512\n0 2 627 0 1795206582 671152\n0 3 700 0 1795206583 1152\n")
    assert parsed.parts == [SecondPart(1795206582, 0, [3187, 627]), SecondPart(1795206583, 0, [700])]
    assert parsed.newest == 1795206583


def test_real_lines_with_skipped_and_lag() -> None:
    lines = b"0 2 2451 0 1795206643 950305 1609\n0 3 skipped 0 1795206643 950308 0\n"
    (part,) = parse_lines(lines, LogLayout(lag=True)).parts
    assert (part.latencies, part.lags, part.skipped, part.failed) == ([2451], [1609], 1, 0)
    assert parse_lines(lines).parts[0].lags == []


def test_real_lines_with_failed_and_retries() -> None:
    parsed = parse_lines(b"2 1 failed 0 1795206646 990724 1\n0 1 failed 0 1795206646 991480 1\n")
    assert [(part.latencies, part.failed) for part in parsed.parts] == [([], 2)]
    assert parsed.newest == 1795206646


@pytest.mark.parametrize(
    "path", sorted(SAMPLES.glob("1[4-9]/*.log")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_every_line_of_every_pgbench_is_understood(path: Path) -> None:
    """Against a reading of our own, token by token."""
    lag = "-R" in RUNS[path.stem].options
    chunk = path.read_bytes()
    parsed = parse_lines(chunk, LogLayout(lag=lag, scripts=4))
    assert parsed.unreadable == 0
    latencies: Counter[tuple[int, int]] = Counter()
    words: Counter[tuple[int, str]] = Counter()
    lags = 0
    for line in chunk.decode().splitlines():
        _, _, result, script, _, _, *more = line.split()
        assert len(more) == lag + ("--max-tries" in RUNS[path.stem].options)
        if result.isdigit():
            latencies[int(script), int(result)] += 1
            lags += int(more[0]) if lag else 0
        else:
            words[int(script), result] += 1
    assert Counter((part.script, us) for part in parsed.parts for us in part.latencies) == latencies
    assert sum(sum(part.lags) for part in parsed.parts) == lags
    found: Counter[tuple[int, str]] = Counter()
    for part in parsed.parts:
        for word, times in part.word_counts.items():
            found[part.script, word] += times
    assert found == words


@given(st.lists(st.tuples(RESULTS, SECONDS), max_size=60), st.sampled_from(("", " 17", " 17 2")), st.booleans())
def test_every_line_is_counted_once_whatever_the_order(rows: list[tuple[str, int]], more: str, ordered: bool) -> None:
    rows = sorted(rows, key=lambda row: row[1]) if ordered else rows
    parsed = parse_lines(text(rows, more))
    expected: dict[int, Counter[int]] = {}
    for result, second in rows:
        if result.isdigit():
            expected.setdefault(second, Counter())[int(result)] += 1
    assert by_second(parsed) == expected
    for word in ("skipped", "failed", "serialization", "deadlock"):
        assert count(parsed, word) == sum(result == word for result, _ in rows)
    assert parsed.newest == (rows[-1][1] if rows else None)
    assert parsed.unreadable == 0


@given(st.lists(st.tuples(RESULTS, SECONDS, st.integers(0, 3), st.integers(0, 99)), min_size=1), st.booleans())
def test_columns_and_single_lines_give_the_same(rows: list[tuple[str, int, int, int]], ordered: bool) -> None:
    """A chunk with a foreign line in it is read line by line."""
    rows = sorted(rows, key=lambda row: row[1]) if ordered else rows
    chunk = "".join(f"0 1 {result} {script} {second} 9 {lag}\n" for result, second, script, lag in rows).encode()
    layout = LogLayout(lag=True, scripts=4)
    counted: list[Counter[tuple[int, int, str, int]]] = []
    for parsed in (parse_lines(chunk, layout), parse_lines(chunk + b"foreign\n", layout)):
        found: Counter[tuple[int, int, str, int]] = Counter()
        for part in parsed.parts:
            where = (part.second, part.script)
            found.update((*where, str(us), lag) for us, lag in zip(part.latencies, part.lags, strict=True))
            found.update({(*where, word, -1): times for word, times in part.word_counts.items()})
        counted.append(found)
    expected = Counter((second, script, r, lag if r.isdigit() else -1) for r, second, script, lag in rows)
    numbers = Counter({(s, n, str(int(r)) if r.isdigit() else r, lag): c for (s, n, r, lag), c in expected.items()})
    assert counted == [numbers, numbers]


@given(st.lists(st.tuples(RESULTS, SECONDS), min_size=1, max_size=20), st.data())
def test_a_foreign_line_among_them_costs_only_itself(rows: list[tuple[str, int]], data: st.DataObject) -> None:
    lines = text(rows).splitlines(keepends=True)
    lines.insert(data.draw(st.integers(0, len(lines))), b"what is this\n")
    parsed = parse_lines(b"".join(lines))
    assert parsed.unreadable == 1
    assert sum(len(part.latencies) for part in parsed.parts) == sum(result.isdigit() for result, _ in rows)


@given(st.binary(max_size=300))
def test_no_bytes_upset_the_parser(chunk: bytes) -> None:
    for layout in (LogLayout(), LogLayout(lag=True), LogLayout(scripts=4), LogLayout(lag=True, scripts=4)):
        parse_lines(chunk + b"\n", layout)
