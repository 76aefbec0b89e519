"""Every knob of the catalogue on real servers: set, read back, taken back, the file as it was to the byte."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import psycopg
import pytest

from pgtop_tune.advice.knobs.catalogue import KNOBS
from pgtop_tune.base.errors import ServerProblem
from pgtop_tune.changes.model.change import ChangeState
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.model.postgres import Parameter
from tests.changes.server.test_control import auto_conf, control_of, settings
from tests.support.servers import MAJORS, conninfo
from tests.support.undoing import undo

TEN: Final = (
    "max_wal_size", "checkpoint_timeout", "synchronous_commit", "bgwriter_delay", "shared_buffers",
    "random_page_cost", "max_parallel_workers", "autovacuum_vacuum_scale_factor", "io_method",
    "log_min_duration_statement",
)  # fmt: skip
STANDING: Final = (("work_mem", "5MB"), ("random_page_cost", "2.5"), ("jit", "off"), ("max_wal_size", "1500MB"))
"""Lines that stand in the file before, so that there is an order to lose."""


def another(parameter: Parameter) -> tuple[str, ...]:
    """Values that differ from the one it has, as the server's own row allows them."""
    if parameter.vartype == "bool":
        return ("off" if parameter.setting == "on" else "on",)
    if parameter.enumvals:
        return tuple(value for value in parameter.enumvals if value != parameter.setting)
    if parameter.vartype == "string":
        return ("pg_stat_statements", "on", "x")
    low, high = float(parameter.min_val), float(parameter.max_val)
    now = float(parameter.setting)
    far = 60_000.0 if parameter.unit == "ms" else now * 2
    numbers = (far, now * 2, now / 2, now + 1, now - 1, low, high, (low + high) / 2)
    fit = [number for number in numbers if low <= number <= high and number != now]
    return tuple(dict.fromkeys(f"{number:.15g}" if parameter.vartype == "real" else str(int(number)) for number in fit))


async def there_and_back(server: Throwaway, control: PostgresControl, name: str) -> bool:
    """Whether the server has the knob and took a value; the file afterwards is as it was."""
    found = await control.list((name,))
    if not found:
        return False
    file_before = auto_conf(server)
    for value in another(found[0]):
        try:
            change = await control.apply(name, value)
        except ServerProblem:
            assert auto_conf(server) == file_before, (name, value)
            continue
        assert change.state is ChangeState.APPLIED
        assert auto_conf(server) != file_before, (name, value)
        later = "restart" in change.message or "sessions that start" in change.message
        assert later or change.shown_after != change.shown_before, (name, value, change)
        assert later or not change.message, (name, value, change)
        undone = await undo(control)
        assert undone is not None
        assert undone.shown_after == found[0].shown
        assert auto_conf(server) == file_before, (name, value)
        return True
    return False


async def walk(server: Throwaway, directory: Path, names: tuple[str, ...]) -> set[str]:
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        for name, value in STANDING:
            connection.execute(f"ALTER SYSTEM SET {name} = '{value}'".encode())
        connection.execute("SELECT pg_reload_conf()")
    before = settings(server)
    control = control_of(server, directory)
    taken = {name for name in names if await there_and_back(server, control, name)}
    assert await control.in_force() == ()
    await control.aclose()
    assert settings(server) == before
    return taken


async def test_ten_knobs_leave_no_trace(fresh_server: Throwaway, tmp_path: Path) -> None:
    assert await walk(fresh_server, tmp_path, TEN) == set(TEN)


@pytest.mark.long
@pytest.mark.parametrize("major", MAJORS)
async def test_every_knob_leaves_no_trace(make_server: Callable[..., Throwaway], major: int, tmp_path: Path) -> None:
    server = make_server(major)
    names = tuple(knob.name for knob in KNOBS)
    taken = await walk(server, tmp_path, names)
    control = control_of(server, tmp_path)
    had = {parameter.name for parameter in await control.list(names)}
    await control.aclose()
    assert had - taken == set()
    assert len(taken) > 60
