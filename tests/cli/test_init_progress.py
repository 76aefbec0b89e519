"""What is told of a data set in the making, where there is no terminal."""

from __future__ import annotations

import pytest

from pgtop_tune.bench.datasets.pgbench_tables import InitialiseProgress, StepPace
from pgtop_tune.cli.commands.bench import data_sets
from pgtop_tune.cli.commands.bench.data_sets import CreatedDataSet, progress_shown, progress_words, step_lines
from pgtop_tune.cli.options import TableFormat


@pytest.mark.parametrize(
    ("seen", "pace", "said"),
    [
        (InitialiseProgress("vacuuming"), StepPace(), ""),
        (InitialiseProgress("rows", 0, 6_000_000), StepPace(), "0 of 6.00M rows"),
        (
            InitialiseProgress("rows", 10**6, 6 * 10**6),
            StepPace(1e5, 50.0),
            "1.00M of 6.00M rows, 100k rows/s, 50 s left",
        ),
        (
            InitialiseProgress("vacuum", 5, 9, unit="blocks"),
            StepPace(1.0, 4.0),
            "5 of 9 blocks, 1 blocks/s, 4.0 s left",
        ),
        (InitialiseProgress("rows", 1, 2, True), StepPace(1.0, 125.0), "about 1 of 2 rows, 1 rows/s, 2m05s left"),
    ],
)
def test_rows_rate_and_remaining_time_in_words(seen: InitialiseProgress, pace: StepPace, said: str) -> None:
    assert progress_words(seen, pace) == said


def test_a_long_step_is_told_every_few_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 1.0, 2.0, 6.0, 7.0, 12.0, 13.0])
    monkeypatch.setattr(data_sets.time, "monotonic", lambda: next(clock))
    with progress_shown() as tell:
        for done in range(6):
            tell(InitialiseProgress("rows", done * 1000, 10_000))
        tell(InitialiseProgress("vacuum"))
    assert capsys.readouterr().err.splitlines() == [
        "rows",
        "rows: 3000 of 10.0k rows, 500 rows/s, 14 s left",
        "rows: 5000 of 10.0k rows, 417 rows/s, 12 s left",
        "vacuum",
    ]


def test_the_markdown_table_has_the_shape_of_the_field() -> None:
    made = CreatedDataSet("pgbench", "default", {}, (("server-side generate", 381.29), ("vacuum", 273.85)), 655.2)
    assert step_lines(made, TableFormat.MARKDOWN) == [
        "| init step, s | default |",
        "|---|---:|",
        "| server-side generate | 381.29 |",
        "| vacuum | 273.85 |",
        "| total | 655.20 |",
    ]
