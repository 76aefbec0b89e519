"""Plans bound to a server that is not there, for tests of what is pure about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from pgtop_tune.experiment.plan.bind import ServerView, bound
from pgtop_tune.experiment.plan.model import BoundPlan, PlanFacts
from pgtop_tune.experiment.plan.plan_file import parse_plan
from pgtop_tune.experiment.plan.results import CellResult, ExperimentOutcome
from pgtop_tune.model.machine import SystemSetting
from pgtop_tune.model.postgres import Parameter

GB = 2**30


def parameter(name: str, setting: str, **values: Any) -> Parameter:
    """A row of pg_settings."""
    row: dict[str, Any] = {
        "name": name, "setting": setting, "shown": setting, "unit": "", "category": "", "short_desc": "",
        "context": "sighup", "vartype": "integer", "source": "default", "min_val": "", "max_val": "", "enumvals": (),
        "boot_val": setting, "reset_val": setting, "sourcefile": "", "pending_restart": False,
    }  # fmt: skip
    return Parameter(**{**row, **values})


def setting(name: str, live: str, *, writable: bool = True) -> SystemSetting:
    """A setting of the machine."""
    return SystemSetting(name=name, path=f"/proc/sys/{name}", live=live, writable=writable)


PARAMETERS = (
    parameter("max_wal_size", "1024", unit="MB"),
    parameter("work_mem", "4096", unit="kB", context="user"),
    parameter("shared_buffers", "16384", unit="8kB", context="postmaster"),
    parameter("max_connections", "100", context="postmaster"),
    parameter("huge_pages", "try", context="postmaster", vartype="enum"),
    parameter("huge_page_size", "0", unit="kB", context="postmaster"),
    parameter("fsync", "on", vartype="bool"),
    parameter("max_prepared_transactions", "0", context="postmaster", source="command line"),
)


def view(**values: Any) -> ServerView:
    """A server with 16 GB and 4 cores."""
    facts = PlanFacts(ram_bytes=16 * GB, cores=4, shared_buffers_bytes=128 * 2**20, advised={"shared_buffers": "4GB"})
    rows: Mapping[str, Parameter] = {row.name: row for row in PARAMETERS}
    settings = {each.name: each for each in (setting("vm.nr_hugepages", "0"), setting("vm.swappiness", "60"))}
    base = ServerView(server="PostgreSQL 18", facts=facts, parameters=rows, names=tuple(rows), settings=settings)
    return replace(base, **values)


def bound_text(text: str, **values: Any) -> BoundPlan:
    """A plan of that text, with the name "t", on that server."""
    plan = parse_plan(f'name = "t"\n{text}')
    scripts = tuple((name, "builtin") for name in plan.profiles)
    return bound(plan, view(**{"scripts": scripts, **values}))


def outcome(plan: BoundPlan, tps: Mapping[int, float], **values: Any) -> ExperimentOutcome:
    """Results by number of the cell."""
    results = {
        number: CellResult(number=number, tps=each, transactions=round(each * plan.time_s), failed=0, latency_ms=1.0)
        for number, each in tps.items()
    }
    base = ExperimentOutcome(id="t-1", plan=plan, hash="h", results=results, made={})
    return replace(base, **values)
