"""What panes about waits stand on, or why they would show nothing."""

from __future__ import annotations

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.active_sessions import hidden_sessions
from pgtop_tune.metrics.waits import LONG_WINDOW_S, is_any_active
from pgtop_tune.model.absence import NOT_YET, Unavailable
from pgtop_tune.model.waits import WaitSample
from pgtop_tune.runtime.session import Session


def wait_source(session: Session) -> WaitSample | Unavailable:
    """The newest looks at waits; where nobody was seen waiting and this role may not see everybody, the GRANT."""
    frame, interval = session.now, session.interval
    if frame is None or interval is None:
        return NOT_YET
    sample = sections.waits(frame)
    if isinstance(sample, Unavailable) or is_any_active(interval, LONG_WINDOW_S):
        return sample
    return hidden_sessions(frame) or sample
