"""Parameters of the server, without the manual's words on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from pgtop_tune.model.postgres import Parameter, ParameterSample
from pgtop_tune.postgres.queries import sql
from pgtop_tune.postgres.readers.section_readers import ReadContext
from pgtop_tune.postgres.server import time_limits
from pgtop_tune.postgres.server.search_path import AT_START
from pgtop_tune.secret import without_secrets


async def read_parameters(context: ReadContext, in_files: bool) -> ParameterSample:
    """pg_settings as a session without our own settings has it; without those that ours has from the start.

    Args:
        context: Where to ask.
        in_files: Whether this role may read pg_file_settings, which tells the entries of postgresql.auto.conf.
    """
    rows = await context.connection.fetch_without_own_settings(sql("parameters", context.major))
    at_s = context.clock()
    in_auto_conf: frozenset[str] | None = None
    if in_files:
        in_auto_conf = frozenset(row[0] for row in await context.fetch("auto_conf"))
    found = {row["name"]: _parameter(row, in_auto_conf) for row in rows if row["name"] not in AT_START}
    waiting = [row.name for row in found.values() if row.pending_restart]
    if waiting and in_files:
        for line in await context.fetch("pending", waiting):
            row = found[line["name"]]
            found[row.name] = replace(row, pending=without_secrets(line["setting"] or row.boot_val))
    lifted = [row for row in found.values() if time_limits.is_lifted(row)]
    if lifted:
        names = [row.name for row in lifted]
        nearer = {row["name"]: row for row in await context.fetch("limits_of_session", names)}
        lines = await context.connection.fetch(time_limits.IN_FILES.replace("%s", "$1"), names) if in_files else ()
        files = {row["name"]: (row["setting"], row["place"]) for row in lines}
        found |= {row.name: _as_set(row, nearer.get(row.name), files.get(row.name)) for row in lifted}
    return ParameterSample(at_s, tuple(found.values()))


def _as_set(row: Parameter, nearer: Any, line: tuple[str, str] | None) -> Parameter:
    """A limit that our session has lifted, as others of our role in our database have it."""
    from_start = row.source == "client"
    if nearer is None:
        return time_limits.as_set(row, line, from_start=from_start)
    found = time_limits.as_set(row, (nearer["setting"], ""), from_start=from_start)
    return replace(found, source=nearer["source"])


def _parameter(row: Any, in_auto_conf: frozenset[str] | None) -> Parameter:
    values: Sequence[Any] = list(row)
    in_file = None if in_auto_conf is None else row["name"] in in_auto_conf
    fields = dict(zip(row.keys(), values, strict=True))
    # The manual's words are half the bytes and never change; whoever shows a parameter asks for them (`control.list`).
    fields["category"] = fields["short_desc"] = ""
    fields["enumvals"] = tuple(fields["enumvals"])
    if fields["vartype"] == "string":
        # primary_conninfo and commands may hold passwords, and frames are recorded.
        for name in ("setting", "shown", "reset_val", "boot_val"):
            fields[name] = without_secrets(fields[name] or "")
    return Parameter(**fields, in_auto_conf=in_file)
