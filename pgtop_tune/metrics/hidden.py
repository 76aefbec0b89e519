"""Sessions this role may not look into: where they may be all there is, no rows do not mean that there is nothing."""

from __future__ import annotations

from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Reason, Unavailable, grant
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import HIDDEN_QUERY


def hidden_sessions(frame: Frame) -> Unavailable | None:
    """The GRANT that opens them; None when every session is open to us.

    Source: pg_stat_activity.query, which says so in place of a text.
    """
    activity, server = sections.activity(frame), sections.server(frame)
    if isinstance(activity, Unavailable) or isinstance(server, Unavailable):
        return None
    if not any(backend.query == HIDDEN_QUERY for backend in activity.backends):
        return None
    opens = grant("pg_monitor", server.user)
    return Unavailable(Reason.NO_PERMISSION, f"other users' sessions are hidden: {opens} shows them")
