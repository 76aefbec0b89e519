"""Parquet with the columns of the tidy form, through pyarrow, which is an extra."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from pgtop_tune.errors import UsageProblem
from pgtop_tune.export.exported import Exported, WatchedInterval
from pgtop_tune.export.tidy import COLUMNS, tidy

_ROWS_AT_ONCE: Final = 65_536
"""Rows of a row group: what is in memory."""


def pyarrow() -> Any:
    """The library.

    Raises:
        UsageProblem: It is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        hint = "pip install pyarrow, or --format csv"
        raise UsageProblem("Parquet needs pyarrow, which is not installed", hint) from None
    return pyarrow


def write_parquet(path: Path, rows: Sequence[Exported], moments: Iterable[WatchedInterval]) -> int:
    """Writes the file; gives the number of rows. An empty cell is null.

    Raises:
        UsageProblem: pyarrow is not installed.
        OSError: The file cannot be written.
    """
    arrow = pyarrow()
    text = arrow.string()
    kinds = (arrow.timestamp("ms", tz="UTC"), arrow.float64(), text, text, arrow.float64(), text, text)
    schema = arrow.schema(list(zip(COLUMNS, kinds, strict=True)))
    found, count = tidy(rows, moments), 0
    with arrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        while group := list(islice(found, _ROWS_AT_ONCE)):
            columns = zip(*group, strict=True)
            writer.write_table(
                arrow.table(
                    [arrow.array(list(each), kind) for each, kind in zip(columns, kinds, strict=True)], schema=schema
                )
            )
            count += len(group)
    return count
