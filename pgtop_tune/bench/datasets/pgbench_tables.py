"""pgbench's own tables: how they are to be made, in the words of pgbench -i, and what room they take.

Source: pgbench's documentation, initialisation options of 13 to 18.

Whether a data set will fit: an estimate against what the file system of the data has left.
Source: pg_settings data_directory and max_wal_size, pg_database.dattablespace, pg_tablespace_location().
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from pgtop_tune.bench.ports import SqlSession
from pgtop_tune.errors import LoadProblem, ServerProblem
from pgtop_tune.units import size

SPARE: Final = 1.1
"""For what an estimate does not know: sorting, free space maps, other tables that grow."""

_DIRECTORY: Final = """
SELECT coalesce(nullif(pg_tablespace_location(coalesce(
           (SELECT oid FROM pg_tablespace WHERE spcname = nullif(%s::text, '')),
           (SELECT dattablespace FROM pg_database WHERE datname = current_database()))), ''),
       current_setting('data_directory')),
       (SELECT setting::bigint * 1024 * 1024 FROM pg_settings WHERE name = 'max_wal_size')
"""


class Room(Struct, frozen=True):
    """What is wanted and what there is.

    Attributes:
        needed_bytes: Data, with what WAL may take until a checkpoint frees it.
        available_bytes: None when it cannot be said; `why` says why.
    """

    needed_bytes: int
    available_bytes: int | None
    why: str = ""

    def check(self) -> str:
        """What to tell before the start; "" when there is nothing to say.

        Raises:
            LoadProblem: It will not fit.
        """
        if not self.needed_bytes:
            return ""
        if self.available_bytes is None:
            return f"about {size(self.needed_bytes)} of disk will be needed; free space is unknown: {self.why}"
        if self.available_bytes < self.needed_bytes:
            raise LoadProblem(
                f"about {size(self.needed_bytes)} of disk will be needed, and {size(self.available_bytes)} are free",
                "make it smaller, free some space, or pass --skip-space-check",
            )
        return ""


async def look_for_room(
    hand: SqlSession,
    estimated_bytes: int,
    freed_bytes: int,
    free_bytes: Callable[[str], int | str],
    tablespace: str = "",
) -> Room:
    """Compares an estimate with the file system of the data.

    Args:
        freed_bytes: Of the data set that will be dropped first.
        free_bytes: Bytes available at a directory of the server's machine, or why that cannot be said.
        tablespace: Where the tables are to be; "" for the database's own.
    """
    try:
        [(directory, max_wal_bytes)] = await hand.rows(_DIRECTORY, [tablespace])
    except ServerProblem:
        return Room(int(estimated_bytes * SPARE), None, "this role may not see the server's data directory")
    # WAL of a tablespace lies elsewhere; counted all the same, it errs on the safe side.
    wal_bytes = min(estimated_bytes, int(str(max_wal_bytes)))
    needed = max(0, int((estimated_bytes + wal_bytes) * SPARE) - freed_bytes)
    found = free_bytes(str(directory))
    return Room(needed, found) if isinstance(found, int) else Room(needed, None, found)


STEPS: Final = {
    "d": "drop tables",
    "t": "create tables",
    "g": "client-side generate",
    "G": "server-side generate",
    "v": "vacuum",
    "p": "primary keys",
    "f": "foreign keys",
}
"""Letters of -I, and pgbench's names of the steps in its last line."""
DEFAULT_STEPS: Final = "dtgvp"
PARTITION_METHODS: Final = ("range", "hash")
LARGEST_SCALE: Final = 1_000_000

_LETTERS: Final = re.compile(rf"[{''.join(STEPS)} ]+")
_DESTROYING: Final = frozenset("dgG")
_PAGE: Final = 8192
_USABLE: Final = _PAGE - 24
_ACCOUNT: Final = 132
"""Header 24, three integers, 85 for filler, aligned to 128; 4 for the line pointer."""
_INDEX_BYTES_PER_SCALE: Final = 2_260_000


class PgbenchShape(Struct, frozen=True):
    """Options of pgbench -i besides the scale.

    Attributes:
        steps: Letters of `STEPS`, in the order wanted; blanks count for nothing.
        fillfactor: Of accounts, tellers and branches, 10 to 100; None leaves it to pgbench (100).
        partitions: Of pgbench_accounts; 0 for none.
        partition_method: range or hash; "" leaves it to pgbench (range).
        unlogged: Without WAL: quicker, and not representative.
        tablespace: "" for the database's own.
    """

    steps: str = DEFAULT_STEPS
    fillfactor: int | None = None
    partitions: int = 0
    partition_method: str = ""
    foreign_keys: bool = False
    unlogged: bool = False
    tablespace: str = ""
    index_tablespace: str = ""

    @property
    def destroys(self) -> bool:
        """Whether tables that are there would be dropped or emptied."""
        return bool(_DESTROYING & set(self.steps))

    @property
    def generates(self) -> bool:
        """Whether rows are made."""
        return bool({"g", "G"} & set(self.steps))

    def words(self) -> list[str]:
        """Options for the command line.

        Raises:
            LoadProblem: One that pgbench would refuse.
        """
        for refusal in _REFUSALS:
            if refusal.wrong(self):
                raise LoadProblem(refusal.words)
        words = [f"--init-steps={self.steps.replace(' ', '')}"] if self.steps != DEFAULT_STEPS else []
        words += [f"--fillfactor={self.fillfactor}"] if self.fillfactor is not None else []
        words += [f"--partitions={self.partitions}"] if self.partitions else []
        words += [f"--partition-method={self.partition_method}"] if self.partition_method else []
        words += ["--foreign-keys"] if self.foreign_keys else []
        words += ["--unlogged-tables"] if self.unlogged else []
        words += [f"--tablespace={self.tablespace}"] if self.tablespace else []
        words += [f"--index-tablespace={self.index_tablespace}"] if self.index_tablespace else []
        return words


class _Refusal(Struct, frozen=True):
    """What pgbench would not take."""

    wrong: Callable[[PgbenchShape], object]
    words: str


_REFUSALS: Final = (
    _Refusal(
        lambda shape: not _LETTERS.fullmatch(shape.steps),
        "steps are letters of "
        + "".join(STEPS)
        + ": "
        + ", ".join(f"{letter} {name}" for letter, name in STEPS.items()),
    ),
    _Refusal(
        lambda shape: shape.fillfactor is not None and not 10 <= shape.fillfactor <= 100,
        "the fill factor must be from 10 to 100",
    ),
    _Refusal(lambda shape: not 0 <= shape.partitions <= 100_000, "partitions must be from 0 (none) to 100000"),
    _Refusal(
        lambda shape: shape.partition_method not in ("", *PARTITION_METHODS),
        f"the partition method is one of {', '.join(PARTITION_METHODS)}",
    ),
    _Refusal(
        lambda shape: shape.partition_method and not shape.partitions,
        "a partition method needs a number of partitions (--partitions)",
    ),
)


def check_scale(scale: int) -> None:
    """Refuses a scale that pgbench would refuse.

    Raises:
        LoadProblem: Names the range.
    """
    if not 1 <= scale <= LARGEST_SCALE:
        raise LoadProblem(f"the scale must be from 1 to {LARGEST_SCALE}")


def heap_bytes(scale: int, fillfactor: int | None = None) -> int:
    """Bytes of pgbench_accounts without indexes: 61 rows a page at fill factor 100."""
    free = _PAGE * (100 - (fillfactor or 100)) // 100
    rows_per_page = max(1, (_USABLE - free) // _ACCOUNT)
    return -(-scale * 100_000 // rows_per_page) * _PAGE


def estimated_bytes(scale: int, shape: PgbenchShape) -> int:
    """Bytes of all tables and indexes when they are made: some 15.6 MB per unit of scale."""
    if not shape.generates:
        return 0
    index = _INDEX_BYTES_PER_SCALE * scale if "p" in shape.steps else 0
    return heap_bytes(scale, shape.fillfactor) + index + 200 * 1024
