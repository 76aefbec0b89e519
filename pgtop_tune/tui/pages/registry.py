"""The pages there are, in the order of their keys. A page is one row here."""

from __future__ import annotations

from typing import Final

from pgtop_tune.tui.pages import host, io, locks, poolers, relations, replication, sessions, statements, waits
from pgtop_tune.tui.pages.page import Page

DASHBOARD_KEY: Final = "1"
DASHBOARD_ID: Final = "dashboard"
DASHBOARD_NAME: Final = "dash"

PAGES: Final[tuple[Page, ...]] = (
    sessions.PAGE,
    waits.PAGE,
    locks.PAGE,
    statements.PAGE,
    io.PAGE,
    host.PAGE,
    relations.PAGE,
    replication.PAGE,
    poolers.PAGE,
)

NAMES: Final = ((DASHBOARD_KEY, DASHBOARD_NAME), *((page.key, page.title) for page in PAGES))
"""Key and name of every screen, for footers."""


def page_of(name: str) -> Page:
    """The page with that id.

    Raises:
        KeyError: There is none.
    """
    for page in PAGES:
        if page.id == name:
            return page
    raise KeyError(name)
