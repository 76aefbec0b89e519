"""Housekeeping before a run, so that each run begins from the same state; pgbench itself gets -n."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import ServerProblem, UsageProblem
from pgtop_tune.base.foreign_answers import decodes
from pgtop_tune.base.sql_quoting import ME, trusted
from pgtop_tune.bench.datasets.recognise import PGBENCH_COLUMNS
from pgtop_tune.bench.ports import SqlSession
from pgtop_tune.model.run_result import HousekeepingStep

TRUNCATE: Final = "truncate-history"
VACUUM: Final = "vacuum"
PREWARM: Final = "prewarm"
CHECKPOINT: Final = "checkpoint"
QUIET: Final = "quiet"
STEPS: Final = (TRUNCATE, VACUUM, PREWARM, CHECKPOINT, QUIET)
"""All steps in their order; `tidy` does all but QUIET, which needs frames."""
OF_TABLES: Final = (TRUNCATE, VACUUM, PREWARM)
"""Steps that do nothing where the tables of a load are not known."""
USUAL: Final = (TRUNCATE, VACUUM, CHECKPOINT, QUIET)
NONE: Final = "none"

DATASET_TABLES: Final = {"pgbench": tuple(PGBENCH_COLUMNS)}
"""Names of tables by data set; a data set with a schema of its own is in `FOUND_IN` instead."""
FOUND_IN: Final = {"bus": "bus"}
"""Schema by data set, where it has one of its own."""
HISTORY: Final = "pgbench_history"

_TABLES: Final = f"""
SELECT DISTINCT ON (c.relname)
       format('%%I.%%I', n.nspname, c.relname), c.relname::text, c.relpersistence = 'u',
       pg_has_role(c.relowner, 'USAGE'), {trusted("c.relowner")} AND {trusted("n.nspowner")},
       ARRAY(SELECT a.attname::text FROM pg_attribute a
              WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum)
  FROM unnest(%s::text[]) WITH ORDINALITY AS path(name, place)
  JOIN pg_namespace n ON n.nspname = path.name AND has_schema_privilege(n.oid, 'usage')
  JOIN pg_class c ON c.relnamespace = n.oid CROSS JOIN {ME}
 WHERE c.relkind IN ('r', 'p') AND (%s::text[] IS NULL OR c.relname = ANY (%s))
 ORDER BY c.relname, path.place
"""
"""Query for tables on a path of schemas; of each name it returns the first on the path."""


_PREWARM: Final = """
SELECT format('%I.pg_prewarm', n.nspname)
  FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'pg_prewarm'
"""
_READ_IN: Final = """
SELECT {prewarm}(part::regclass, 'buffer'::text, 'main'::text, NULL::int8, NULL::int8)
  FROM (SELECT %s::regclass::oid UNION ALL
        SELECT indexrelid FROM pg_index WHERE indrelid = %s::regclass AND indisvalid) AS parts(part)
 WHERE (SELECT relkind FROM pg_class WHERE oid = part) IN ('r', 'i')
"""
"""Query that reads a table and its indexes in. All five arguments have types, so that no other account's function of
the same name fits better."""


class DatasetTable(Struct, frozen=True):
    """One table of a data set.

    Attributes:
        sql: Schema and name, quoted by the server.
        unlogged: Writes no WAL.
        owned: This role may vacuum it.
        safe: Its triggers may be run by us, see `sql_quoting.trusted`.
        columns: In order.
    """

    sql: str
    name: str
    unlogged: bool
    owned: bool
    safe: bool
    columns: tuple[str, ...]

    @property
    def is_history(self) -> bool:
        """Return whether this is pgbench's own history, not another table of that name."""
        return self.name == HISTORY and self.columns == PGBENCH_COLUMNS[HISTORY]


def parse_housekeeping(text: str) -> tuple[str, ...]:
    """Return the steps of "vacuum,quiet" in their order; none for "none".

    Raises:
        UsageProblem: A word that is no step.
    """
    names = [word.strip() for word in text.split(",") if word.strip()]
    if names == [NONE]:
        return ()
    for word in names:
        if word not in STEPS:
            raise UsageProblem(f"{word!r} is not a housekeeping step", f"choose from {', '.join(STEPS)}, or none")
    return tuple(step for step in STEPS if step in names)


@decodes
async def find_tables(sql_session: SqlSession, dataset: str) -> tuple[DatasetTable, ...]:
    """Return the tables that exist of a data set; none for a load without a data set of ours.

    Source: pg_class, pg_attribute.

    Raises:
        ServerProblem: The server refuses the query.
        ConnectionProblem: The connection is gone.
    """
    schema, names = FOUND_IN.get(dataset), DATASET_TABLES.get(dataset)
    if schema is None and names is None:
        return ()
    path = [schema] if schema is not None else list(await sql_session.search_path())
    table_names = list(names) if schema is None and names is not None else None
    rows: list[tuple[object, ...]] = await sql_session.rows(_TABLES, (path, table_names, table_names))
    return tuple(
        DatasetTable(
            sql=str(sql),
            name=str(name),
            unlogged=bool(unlogged),
            owned=bool(owned),
            safe=bool(safe),
            columns=tuple(columns),  # type: ignore[arg-type]
        )
        for sql, name, unlogged, owned, safe, columns in rows
    )


async def tidy(
    sql_session: SqlSession, steps: Sequence[str], tables: Sequence[DatasetTable], on_step: Callable[[str], None]
) -> tuple[HousekeepingStep, ...]:
    """Do the steps but QUIET, in order; a step that is refused has the server's words in its result.

    Args:
        tables: Tables of the data set.
        on_step: Takes the name of the step that begins.

    Raises:
        ConnectionProblem: The connection is gone.
    """
    done = []
    for name, statements in _statements(tables).items():
        if name not in steps:
            continue
        on_step(name)
        started_s = time.monotonic()
        if name == PREWARM:
            done.append(await _prewarm(sql_session, tables, started_s))
            continue
        problem = _OBSTACLES[name](tables) if name in _OBSTACLES else ""
        for statement in statements:
            try:
                await sql_session.execute(statement)
            except ServerProblem as refused:
                problem = refused.message
        done.append(HousekeepingStep(name, time.monotonic() - started_s, problem))
    return tuple(done)


@decodes
async def _prewarm(sql_session: SqlSession, tables: Sequence[DatasetTable], started_s: float) -> HousekeepingStep:
    """Read tables and indexes into shared buffers, where the database has the extension."""
    functions = await sql_session.rows(_PREWARM)
    function = str(functions[0][0]).replace("%", "%%") if functions else ""
    problem = "" if functions else "the extension pg_prewarm is missing: the warm-up of the load reads the data"
    for table in tables if functions else ():
        try:
            await sql_session.rows(_READ_IN.format(prewarm=function), (table.sql, table.sql))
        except ServerProblem as refused:
            problem = refused.message
    return HousekeepingStep(PREWARM, time.monotonic() - started_s, problem)


def _statements(tables: Sequence[DatasetTable]) -> dict[str, list[str]]:
    return {
        TRUNCATE: [f"TRUNCATE {table.sql}" for table in tables if table.is_history and table.safe],
        VACUUM: [f"VACUUM (ANALYZE) {table.sql}" for table in tables],
        PREWARM: [],
        CHECKPOINT: ["CHECKPOINT"],
    }


def _not_owned(tables: Sequence[DatasetTable]) -> str:
    """Return why VACUUM leaves tables out: it skips tables of others with no more than a warning."""
    foreign_tables = [table.name for table in tables if not table.owned]
    return f"not the owner of {', '.join(foreign_tables)}" if foreign_tables else ""


def _not_safe(tables: Sequence[DatasetTable]) -> str:
    """Return why TRUNCATE leaves tables out: it fires triggers."""
    unsafe_tables = [table.name for table in tables if table.is_history and not table.safe]
    return (
        f"{', '.join(unsafe_tables)} belongs to an ordinary role, whose triggers would run as a superuser"
        if unsafe_tables
        else ""
    )


_OBSTACLES: Final[Mapping[str, Callable[[Sequence[DatasetTable]], str]]] = {VACUUM: _not_owned, TRUNCATE: _not_safe}
"""Why a step leaves tables out."""
