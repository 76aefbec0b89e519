"""Recognises the data sets in a database, so that none is replaced without a request and scripts get their numbers.

Source: pg_class (relkind, relpersistence, reltuples, reloptions), pg_attribute, pg_constraint, pg_inherits,
pg_partitioned_table.partstrat; rows of pgbench_branches; the note that the making of the bus tables leaves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.base.foreign_answers import decodes
from pgtop_tune.base.sql_quoting import ME, real_owner, trusted
from pgtop_tune.base.units import count, size
from pgtop_tune.bench.datasets.bus import CHUNK_TICKETS, OWN_TABLES, TABLES, VERSION, BusPlan, table_sizes
from pgtop_tune.bench.ports import SqlSession

ACCOUNTS_PER_SCALE: Final = 100_000

PGBENCH_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "pgbench_accounts": ("aid", "bid", "abalance", "filler"),
    "pgbench_branches": ("bid", "bbalance", "filler"),
    "pgbench_history": ("tid", "bid", "aid", "delta", "mtime", "filler"),
    "pgbench_tellers": ("tid", "bid", "tbalance", "filler"),
}
_BUS_NOTE: Final = ("version", "seed", "tickets", "unlogged", "done")
_BUS_STEPS: Final = ("create tables", "server-side generate", "vacuum", "primary keys", "indexes")
_STRATEGIES: Final = {"r": "range", "h": "hash"}

_TABLES: Final = f"""
SELECT c.relname::text, c.relkind::text, c.relpersistence::text, n.nspname::text,
       ARRAY(SELECT attname::text FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped
             ORDER BY attnum),
       EXISTS (SELECT FROM pg_constraint WHERE conrelid = c.oid AND contype = 'p'),
       EXISTS (SELECT FROM pg_constraint WHERE conrelid = c.oid AND contype = 'f'),
       format('%%I.%%I', n.nspname, c.relname), c.oid,
       {trusted("c.relowner")} AND {trusted("n.nspowner")},
       pg_get_userbyid(CASE WHEN {trusted("c.relowner")} THEN {real_owner("n.nspowner")} ELSE c.relowner END)::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace CROSS JOIN {ME}
WHERE c.oid IN (
    SELECT DISTINCT ON (t.relname) t.oid
      FROM unnest(%s::text[]) WITH ORDINALITY AS path(name, place)
      JOIN pg_namespace s ON s.nspname = path.name AND has_schema_privilege(s.oid, 'usage')
      JOIN pg_class t ON t.relnamespace = s.oid AND t.relname = ANY(%s)
     ORDER BY t.relname, path.place)
"""
"""Query for the first table of each name on a path. Its last column but one: whether we may evaluate the expressions of
the table, which are code of the owners of table and schema and run with our rights. Its last column: the owner of that
code."""
_BUS_SCHEMA: Final = f"""
SELECT {trusted("n.nspowner")}, pg_get_userbyid({real_owner("n.nspowner")})::text
  FROM pg_namespace n CROSS JOIN {ME} WHERE n.nspname = 'bus'
"""
_ACCOUNTS: Final = """
SELECT coalesce((SELECT partstrat::text FROM pg_partitioned_table WHERE partrelid = c.oid), ''),
       count(*) FILTER (WHERE leaf.oid <> c.oid),
       coalesce(sum(leaf.reltuples) FILTER (WHERE leaf.reltuples > 0), 0)::bigint,
       coalesce(sum(pg_total_relation_size(leaf.oid)), 0)::bigint,
       coalesce(sum(pg_relation_size(leaf.oid)), 0)::bigint,
       max((SELECT option_value FROM pg_options_to_table(leaf.reloptions) WHERE option_name = 'fillfactor'))::int,
       coalesce(bool_or(leaf.relpersistence = 'u'), false)
FROM pg_class c
LEFT JOIN pg_class leaf ON leaf.relkind = 'r'
     AND (leaf.oid = c.oid OR leaf.oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = c.oid))
WHERE c.oid = %s
GROUP BY c.oid
"""


class PgbenchFacts(Struct, frozen=True):
    """pgbench's tables as they are.

    Attributes:
        schema: Where they were found along search_path.
        scale: Rows of pgbench_branches, as pgbench itself counts.
        rows: Of pgbench_accounts: the highest number where there is a primary key, else reltuples; None where a
            superuser would have to read the table of another role for it.
        fillfactor: Of pgbench_accounts, 100 when none is set.
        partitions: Of pgbench_accounts; 0 when it has none.
        size_bytes: pgbench_accounts with its indexes.
        incomplete: The missing parts; "" when they can be used.
        stranger: An ordinary role that a table or its schema belongs to, where this one is a superuser: a load executes
            its functions with all rights. "" otherwise.
        tables: Quoted name by oid, of those of the four that are there.
    """

    schema: str
    scale: int
    rows: int | None = 0
    fillfactor: int = 100
    partitions: int = 0
    partition_method: str = ""
    primary_keys: bool = False
    foreign_keys: bool = False
    unlogged: bool = False
    size_bytes: int = 0
    incomplete: str = ""
    stranger: str = ""
    tables: Mapping[int, str] = {}

    @property
    def empty(self) -> bool:
        """Return whether the tables hold no rows."""
        return self.rows == 0 and self.scale == 0

    def variables(self) -> dict[str, str]:
        """Return the variables for -D."""
        return {"scale": str(self.scale), "accounts": str(self.scale * ACCOUNTS_PER_SCALE)}

    def describe(self) -> str:
        """Return a description in one line."""
        parts = [f"scale {self.scale}", *([] if self.rows is None else [f"{count(self.rows)} accounts"])]
        parts += [size(self.size_bytes)]
        parts += [f"fillfactor {self.fillfactor}"] if self.fillfactor != 100 else []
        parts += [f"{self.partitions} partitions ({self.partition_method})"] if self.partitions else []
        parts += ["foreign keys"] if self.foreign_keys else []
        parts += ["unlogged: no WAL, not representative"] if self.unlogged else []
        parts += [f"incomplete: {self.incomplete}"] if self.incomplete else []
        return ", ".join(parts)


class BusFacts(Struct, frozen=True):
    """The bus tables as they are.

    Attributes:
        tickets: That there are when it is complete; scripts may draw from 1 to this.
        loaded: That were made so far.
        done: Steps that are done, in pgbench's words.
        size_bytes: All tables with their indexes.
        emptied: The tickets that were made are gone: truncated, or unlogged and the server crashed.
    """

    version: int
    seed: int
    tickets: int
    loaded: int
    unlogged: bool
    done: tuple[str, ...]
    size_bytes: int
    emptied: bool = False

    @property
    def foreign_keys(self) -> bool:
        """Return whether the foreign keys were made."""
        return "foreign keys" in self.done

    @property
    def incomplete(self) -> str:
        """Return a description of the missing part; "" when the data set can be used."""
        if self.emptied:
            return "the tickets are missing (truncated, or unlogged and lost in a crash)"
        missing = [step for step in _BUS_STEPS if step not in self.done]
        if not missing:
            return ""
        return f"{count(self.loaded)} of {count(self.tickets)} tickets created, {missing[0]} not done"

    @property
    def empty(self) -> bool:
        """Return whether the data set holds no tickets."""
        return self.loaded == 0 or self.emptied

    def is_of(self, plan: BusPlan) -> bool:
        """Return whether the data set was, or is being, made from this plan."""
        planned = (VERSION, plan.seed, plan.tickets, plan.unlogged)
        return (self.version, self.seed, self.tickets, self.unlogged) == planned and not self.emptied

    def fulfils(self, plan: BusPlan) -> bool:
        """Return whether the data set is complete for this plan."""
        return self.is_of(plan) and not self.incomplete and (self.foreign_keys or not plan.foreign_keys)

    def variables(self) -> dict[str, str]:
        """Return the variables for -D."""
        return {name: str(number) for name, number in table_sizes(self.tickets).items()}

    def describe(self) -> str:
        """Return a description in one line."""
        parts = [f"{count(self.tickets)} tickets", f"seed {self.seed}", size(self.size_bytes)]
        parts += ["foreign keys"] if self.foreign_keys else []
        parts += ["unlogged: no WAL, not representative"] if self.unlogged else []
        parts += [f"incomplete: {self.incomplete}"] if self.incomplete else []
        return ", ".join(parts)


@decodes
async def recognise_pgbench(sql_session: SqlSession) -> PgbenchFacts | None:
    """Return pgbench's tables where search_path finds them; None when there are none.

    Raises:
        LoadProblem: Tables of these names are something else.
        ServerProblem: This role may not read them.
    """
    path = list(await sql_session.search_path())
    tables_by_name = {str(row[0]): row for row in await sql_session.rows(_TABLES, [path, list(PGBENCH_COLUMNS)])}
    for name, row in tables_by_name.items():
        if row[1] not in ("r", "p") or tuple(_words(row[4])) != PGBENCH_COLUMNS[name]:
            raise _in_the_way(f"{row[3]}.{name}", _words(row[4]), "pgbench's")
    if not tables_by_name:
        return None
    tables = {int(str(row[8])): str(row[7]) for row in tables_by_name.values()}
    stranger = next((str(row[10]) for row in tables_by_name.values() if not row[9]), "")
    branches = tables_by_name.get("pgbench_branches")
    scale = await sql_session.count_rows(str(branches[7])) if branches is not None else 0
    accounts = tables_by_name.get("pgbench_accounts")
    if accounts is None:
        schema = str(next(iter(tables_by_name.values()))[3])
        return PgbenchFacts(
            schema=schema,
            scale=scale,
            incomplete="no pgbench_accounts",
            stranger=stranger,
            tables=tables,
        )
    [row] = await sql_session.rows(_ACCOUNTS, [accounts[8]])
    strategy, partitions, estimate, total_bytes, heap_bytes, fillfactor, unlogged = row
    keyed = bool(accounts[5])
    rows = None if keyed else int(str(estimate))
    if keyed and accounts[9]:
        [(highest,)] = await sql_session.rows(f"SELECT coalesce(max(aid), 0) FROM {accounts[7]}")
        rows = int(str(highest))
    return PgbenchFacts(
        schema=str(accounts[3]),
        scale=scale,
        rows=rows,
        fillfactor=int(str(fillfactor or 100)),
        partitions=int(str(partitions)),
        partition_method=_STRATEGIES.get(str(strategy), ""),
        primary_keys=keyed,
        foreign_keys=any(row[6] for row in tables_by_name.values()),
        unlogged=bool(unlogged),
        size_bytes=int(str(total_bytes)),
        incomplete=_missing_of_pgbench(tables_by_name, scale, rows, keyed, bool(heap_bytes)),
        stranger=stranger,
        tables=tables,
    )


def _missing_of_pgbench(
    tables_by_name: Mapping[str, tuple[object, ...]], scale: int, rows: int | None, keyed: bool, has_pages: bool
) -> str:
    absent = [name for name in PGBENCH_COLUMNS if name not in tables_by_name]
    if absent:
        return f"no {', '.join(absent)}"
    if scale == 0 or not has_pages:
        return "the tables are empty (left by an interrupted run of pgbench -i)"
    if not keyed:
        return "no primary keys (step p of pgbench -i)"
    if rows is not None and rows < scale * ACCOUNTS_PER_SCALE:
        return f"{count(rows)} of {count(scale * ACCOUNTS_PER_SCALE)} accounts"
    return ""


@decodes
async def recognise_bus(sql_session: SqlSession) -> BusFacts | None:
    """Return the bus data set; None when there is none.

    Raises:
        LoadProblem: Tables of these names are something else.
        ServerProblem: This role may not read them.
    """
    for safe, owner in await sql_session.rows(_BUS_SCHEMA):
        if not safe:
            raise _of_stranger("schema bus", str(owner))
    names = [*OWN_TABLES, *TABLES]
    tables_by_name = {str(row[0]): row for row in await sql_session.rows(_TABLES, [["bus"], names])}
    if not tables_by_name:
        return None
    note = tables_by_name.get("dataset")
    if note is None or tuple(_words(note[4])) != _BUS_NOTE:
        name, row = ("dataset", note) if note is not None else next(iter(tables_by_name.items()))
        raise _in_the_way(f"bus.{name}", _words(row[4]), "the bus data set's")
    for name, row in tables_by_name.items():
        if not row[9]:
            raise _of_stranger(f"bus.{name}", str(row[10]))
    [row] = await sql_session.rows(
        "SELECT version, seed, tickets, unlogged, done, (SELECT count(*) FROM bus.chunks),"
        " (SELECT sum(pg_total_relation_size(t))::bigint FROM unnest(%s::oid[]) AS t),"
        " EXISTS (SELECT FROM bus.tickets)"
        " FROM bus.dataset",
        [[row[8] for row in tables_by_name.values()]],
    )
    version, seed, tickets, unlogged, done, chunks, size_bytes, has_tickets = row
    total = int(str(tickets))
    return BusFacts(
        version=int(str(version)),
        seed=int(str(seed)),
        tickets=total,
        loaded=min(total, int(str(chunks)) * CHUNK_TICKETS),
        unlogged=bool(unlogged),
        done=tuple(_words(done)),
        size_bytes=int(str(size_bytes or 0)),
        emptied=bool(chunks) and not has_tickets,
    )


async def found_variables(sql_session: SqlSession, dataset: str) -> dict[str, str]:
    """Return the numbers of the data set that a profile needs, as variables of its scripts.

    Args:
        dataset: One of profiles.DATASETS, or "" for none.

    Raises:
        LoadProblem: It is not there or not complete, or something else has its names.
    """
    if not dataset:
        return {}
    facts = await (recognise_bus(sql_session) if dataset == "bus" else recognise_pgbench(sql_session))
    make = f"create it: pgtop-tune bench init --dataset {dataset}"
    if facts is None:
        raise LoadProblem(f"this database has no {dataset} data set", make)
    if facts.empty or (dataset == "bus" and facts.incomplete):
        raise LoadProblem(f"the {dataset} data set is incomplete: {facts.incomplete}", make)
    return facts.variables()


def _words(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []


def _of_stranger(thing_name: str, owner: str) -> LoadProblem:
    return LoadProblem(
        f"{thing_name} belongs to {owner}: a superuser that uses it would execute functions of that role",
        f"connect as {owner}, or take ownership: ALTER … OWNER TO",
    )


def _in_the_way(name: str, columns: list[str], whose: str) -> LoadProblem:
    first_columns = ", ".join(columns[:8])
    return LoadProblem(
        f"the database has a table {name} that is not {whose} (its columns: {first_columns})",
        "use another database, or move that table",
    )
