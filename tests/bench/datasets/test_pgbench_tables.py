"""pgbench -i's options, and the room its tables take."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.bench.datasets.pgbench_tables import PgbenchShape, estimated_bytes, heap_bytes, initialise_argv
from pgtop_tune.bench.locate import Pgbench
from pgtop_tune.bench.ports import LoadEndpoint

PGBENCH = Pgbench(Path("/usr/bin/pgbench"), 180000, "18.0")
ENDPOINT = LoadEndpoint("", 5433, "bench", "shop")


def words(scale: int = 50, **options: object) -> list[str]:
    return initialise_argv(scale, PGBENCH, ENDPOINT, PgbenchShape(**options))  # type: ignore[arg-type]


def test_as_usual_there_is_nothing_but_the_scale() -> None:
    assert words() == ["/usr/bin/pgbench", "-i", "-s", "50", "-p", "5433", "-U", "bench", "shop"]


def test_every_option_has_its_word() -> None:
    given = words(
        steps="d t G v p f",
        fillfactor=70,
        partitions=4,
        partition_method="hash",
        foreign_keys=True,
        unlogged=True,
        tablespace="fast",
        index_tablespace="faster",
    )
    assert given[4:-5] == [
        "--init-steps=dtGvpf",
        "--fillfactor=70",
        "--partitions=4",
        "--partition-method=hash",
        "--foreign-keys",
        "--unlogged-tables",
        "--tablespace=fast",
        "--index-tablespace=faster",
    ]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"scale": 0}, "scale must be from 1 to"),
        ({"steps": "dtx"}, "steps are letters from dtgGvpf"),
        ({"steps": ""}, "steps are letters from"),
        ({"fillfactor": 9}, "fill factor must be from 10 to 100"),
        ({"partitions": -1}, "partitions must be"),
        ({"partitions": 2, "partition_method": "list"}, "method is one of range, hash"),
        ({"partition_method": "hash"}, "needs a number of partitions"),
    ],
)
def test_what_pgbench_would_refuse_is_refused_before(options: dict[str, object], says: str) -> None:
    with pytest.raises(LoadProblem, match=says):
        words(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("steps", "destroys"), [("dtgvp", True), ("G", True), ("vpf", False), ("t", False)])
def test_dropping_and_emptying_is_destroying(steps: str, destroys: bool) -> None:
    assert PgbenchShape(steps=steps).destroys is destroys


def test_a_lower_fill_factor_takes_more_room() -> None:
    assert heap_bytes(1) == 13_434_880  # pg_relation_size('pgbench_accounts') of a real scale 1
    assert heap_bytes(1, block_bytes=32 * 1024) == 404 * 32 * 1024, "248 rows a block"
    assert heap_bytes(1, 50) == pytest.approx(2 * heap_bytes(1), rel=0.05)
    assert estimated_bytes(100, PgbenchShape()) == pytest.approx(1.56e9, rel=0.05)
    assert estimated_bytes(100, PgbenchShape(steps="vp")) == 0
