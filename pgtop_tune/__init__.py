"""pgtop-tune: watch PostgreSQL and its host during a load test, change things live, record and replay."""

from typing import Final

__version__: Final = "0.1.0"
