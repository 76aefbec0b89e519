"""The numbers for Prometheus beside a session without a screen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pgtop_tune.base.errors import UsageProblem

if TYPE_CHECKING:
    from pgtop_tune.export.endpoint import Exposition


@contextmanager
def scraping(words: str, statements: int, interval_s: float) -> Iterator[Exposition | None]:
    """An endpoint for as long as the block runs.

    Args:
        words: The address; "" is none.
        statements: So many entries of pg_stat_statements are told of.
        interval_s: Between two looks.

    Returns:
        A sink for the engine; None without an address.

    Raises:
        UsageProblem: The address cannot be had, or is missing.
    """
    if not (words or statements):
        yield None
        return
    from pgtop_tune.cli.output import tell
    from pgtop_tune.export.endpoint import LOOPBACK, PATH, PORT, Exposition, MetricsEndpoint, address

    if not words:
        raise UsageProblem(
            "--statements needs --openmetrics", f"--openmetrics {LOOPBACK}:{PORT} is where Prometheus scrapes"
        )
    numbers = Exposition(interval_s, statements)
    endpoint = MetricsEndpoint(address(words), numbers.page)
    tell(f"numbers for Prometheus: http://{endpoint.where}{PATH}")
    if not endpoint.where.is_loopback:
        tell("without password and encryption: every client that reaches this address can read them")
    try:
        yield numbers
    finally:
        endpoint.close()
