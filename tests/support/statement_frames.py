"""Made-up readings of statements and of I/O, for frames of `tests.support.frames`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pgtop_tune.model.io import DatabaseRow, IoCounters, SlruCounters
from pgtop_tune.model.statements import StatementCounters, StatementSample, StatementText, StatementTexts
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.session import Session
from tests.support.frames import EPOCH_MS, frame, postgres_sample

HOSTILE = "SELECT '\x1b[31m[red]boo' -- \u202eevil\n FROM t"


def statement(queryid: int, **other: object) -> StatementCounters:
    """An entry that has counted nothing but what is said."""
    values: dict[str, object] = dict.fromkeys(StatementCounters.__struct_fields__, 0)
    values |= {
        "id": f"{queryid}/10/5/1", "queryid": queryid, "usename": "bench", "datname": "bench", "toplevel": True,
        "stats_since_ms": EPOCH_MS - 60_000,
    }  # fmt: skip
    return StatementCounters(**(values | other))  # type: ignore[arg-type]


def sample(
    at_s: float, before_s: float | None, statements: Sequence[StatementCounters], **other: object
) -> StatementSample:
    """A look at these entries."""
    return StatementSample(at_s, before_s, tuple(statements), **other)  # type: ignore[arg-type]


def texts(at_s: float, words: Mapping[int, str]) -> StatementTexts:
    """Texts by query id."""
    return StatementTexts(at_s, tuple(StatementText(queryid, text, len(text)) for queryid, text in words.items()))


def database(datid: int, **other: object) -> DatabaseRow:
    """A database that has counted nothing but what is said."""
    values: dict[str, object] = dict.fromkeys(DatabaseRow.__struct_fields__, 0)
    return DatabaseRow(**(values | {"datid": datid, "datname": f"db{datid}"} | other))  # type: ignore[arg-type]


def io_row(backend_type: str, object: str = "relation", context: str = "normal", **other: int | None) -> IoCounters:
    """A row of pg_stat_io in which every operation can happen and none has."""
    values: dict[str, int | None] = dict.fromkeys(IoCounters.__struct_fields__, 0)
    words = {"id": f"{backend_type}/{object}/{context}", "backend_type": backend_type, "object": object}
    return IoCounters(**(values | words | {"context": context} | other))  # type: ignore[arg-type]


def slru(name: str, **other: object) -> SlruCounters:
    """A cache that has counted nothing but what is said."""
    values: dict[str, object] = dict.fromkeys(SlruCounters.__struct_fields__, 0)
    return SlruCounters(**(values | {"name": name} | other))  # type: ignore[arg-type]


def session_with(sections: Sequence[Mapping[str, object]]) -> Session:
    """A session of one frame a second with these sections of the server in place of the made-up ones."""
    session = Session()
    for second, given in enumerate(sections):
        session.apply(Step((frame(second, postgres=postgres_sample(second, **given)),)))
    return session
