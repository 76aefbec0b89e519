"""Texts of query ids, for tables about waits."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.waits import LONG_WINDOW_S


def query_texts(interval: Interval, wanted: Iterable[Hashable]) -> dict[Hashable, str]:
    """Texts of query ids: as pg_stat_statements keeps them, else of a session that was seen running one."""
    missing = {key for key in wanted if key is not None}
    found: dict[Hashable, str] = {}
    kept = interval.now(sections.statement_texts)
    for text in () if kept is None else kept.texts:
        if text.queryid in missing and text.query:
            found[text.queryid] = text.query
            missing.discard(text.queryid)
    for activity in interval.recent(sections.activity, LONG_WINDOW_S) if missing else ():
        for backend in activity.backends:
            if backend.query_id in missing and backend.query:
                found[backend.query_id] = backend.query
                missing.discard(backend.query_id)
        if not missing:
            break
    return found
