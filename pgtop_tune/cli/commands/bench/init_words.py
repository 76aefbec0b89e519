"""The options of `bench init`, as typed."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.errors import UsageProblem


class Dataset(StrEnum):
    """What can be made."""

    PGBENCH = "pgbench"
    BUS = "bus"


class InitWords(Struct, frozen=True):
    """None and "" where an option was not given."""

    dataset: Dataset = Dataset.PGBENCH
    foreign_keys: bool = False
    unlogged: bool = False
    force: bool = False
    skip_space_check: bool = False
    scale: int | None = None
    steps: str = ""
    fillfactor: int | None = None
    partitions: int | None = None
    partition_method: str = ""
    tablespace: str = ""
    index_tablespace: str = ""
    pgbench: Path | None = None
    size: str = ""
    seed: int | None = None
    jobs: int | None = None

    def check(self) -> None:
        """Refuses an option of the other data set, which would count for nothing.

        Raises:
            UsageProblem: Names it.
        """
        for dataset, rows in _ONLY_FOR.items():
            for name, option in rows.items():
                if dataset is not self.dataset and getattr(self, name) not in (None, ""):
                    raise UsageProblem(f"{option} is for --dataset {dataset}", "leave one of the two out")


_ONLY_FOR: Final = {
    Dataset.PGBENCH: {
        "scale": "-s",
        "steps": "-I",
        "fillfactor": "--fillfactor",
        "partitions": "--partitions",
        "partition_method": "--partition-method",
        "tablespace": "--tablespace",
        "index_tablespace": "--index-tablespace",
        "pgbench": "--pgbench",
    },
    Dataset.BUS: {"size": "--size", "seed": "--seed", "jobs": "--jobs"},
}
"""Options of one data set only."""
