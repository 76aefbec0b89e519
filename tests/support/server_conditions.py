"""Conditions of a server for its checks, as what `server_facts.spoiled` takes, and short ways to checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pgtop_tune.health.check import Check, CheckFinding, Severity
from pgtop_tune.health.questions import (
    BareForeignKey,
    BloatEstimate,
    DatabaseState,
    HbaRule,
    IndexState,
    ScopedSettings,
    SequenceState,
    TableState,
)
from pgtop_tune.health.registry import CHECKS
from pgtop_tune.model.io import ArchiverStatus
from pgtop_tune.model.machine import Disk
from pgtop_tune.model.replication import (
    HorizonSample,
    PreparedTransaction,
    Receiver,
    ReplicationSample,
    SubscriptionSample,
    SubscriptionWorker,
)
from tests.support.frames import MIB
from tests.support.health_facts import details
from tests.support.server_facts import (
    DAY_MS,
    LSN,
    NEXT_XID,
    NOW_MS,
    RESET_MS,
    SECOND,
    checkpoints,
    session,
    wal,
)

BY_ID = {check.id: check for check in CHECKS}
GROUPS = frozenset(
    "DUR ARC WAL SLOT BGW CON TXN VAC TAB PLAN IDX KEY REP LOG OBS SEC CFG BEN".split()  # noqa: SIM905
)
MINE = tuple(check for check in CHECKS if check.id.split("-")[0] in GROUPS)
INFO, WARNING, HIGH, CRITICAL = Severity.INFO, Severity.WARNING, Severity.HIGH, Severity.CRITICAL


def check(id_: str) -> Check:
    return BY_ID[id_]


def worst(findings: Sequence[CheckFinding]) -> Severity | None:
    return max((each.severity for each in findings), key=lambda each: each.rank, default=None)


def setting(**parameters: str) -> dict[str, Any]:
    return {"parameters": parameters}


def answered(name: str, *rows: object) -> dict[str, Any]:
    return {"answers": {f"check_{name}": rows}}


def sections(**by_name: Any) -> dict[str, Any]:
    return {"postgres": by_name}


def table(**other: Any) -> TableState:
    values: dict[str, Any] = {
        "n_tables": 1, "n_never_analyzed": 0, "schema": "shop", "name": "orders", "bytes": MIB, "tuples": 100_000,
        "live": 100_000, "dead": 0, "modified": 0, "never_analyzed": False, "last_vacuum_ms": None,
        "last_analyze_ms": None, "xid_age": 10, "multixact_age": 1, "autovacuum": True,
    }  # fmt: skip
    return TableState(**(values | other))


def index(**other: Any) -> IndexState:
    values: dict[str, Any] = {
        "n_indexes": 2, "schema": "shop", "name": 'odd"name', "table_name": "orders", "bytes": 10 * MIB,
        "valid": True, "scans": 0, "same_as": None, "unused": False, "definition": "CREATE INDEX …",
    }  # fmt: skip
    return IndexState(**(values | other))


def bloat(share: float, size: int = 1000 * MIB, kind: str = "table") -> BloatEstimate:
    return BloatEstimate(0, "shop", "orders", kind, "orders", size, int(size * (1 - share)))


def key(tuples: int) -> BareForeignKey:
    names = ("orders_customer_idx",)
    return BareForeignKey(
        "shop", "orders", "orders_customer_fkey", ["customer"], "shop", "customers", MIB, tuples, 1, free_names=names
    )


def sequence(used: int | None, highest: int = 1000, n_hidden: int = 0, n_left_out: int = 0) -> SequenceState:
    return SequenceState(n_hidden, n_left_out, "shop", "orders_id_seq", "shop", "orders", "id", highest, used)


def archiver(failed_ago_s: int, archived_ago_s: int) -> dict[str, Any]:
    archived, failed = NOW_MS - archived_ago_s * 1000, NOW_MS - failed_ago_s * 1000
    return sections(archiver=ArchiverStatus(float(SECOND), 1, "01", archived, 3, "02", failed, None))


def replicated(*senders: Any, receiver: Receiver | None = None) -> dict[str, Any]:
    return sections(replication=ReplicationSample(float(SECOND), NOW_MS, LSN, senders, receiver))


def receiving(status: str | None, replay: str = "not paused") -> dict[str, Any]:
    receiver = Receiver(status, "db1:5432", None, LSN, LSN, NOW_MS, LSN, NOW_MS, replay)
    return {**replicated(receiver=receiver), "server": {"in_recovery": True}}


def subscribed(kind: str, errors: int = 0) -> dict[str, Any]:
    worker = SubscriptionWorker("orders:", "orders", kind, None, "", None, None, None, errors, 0)
    return sections(subscriptions=SubscriptionSample(float(SECOND), NOW_MS, (worker,)))


def prepared(ago_s: int, age: int = 10) -> dict[str, Any]:
    row = PreparedTransaction("tx'1", NEXT_XID - age, "app", "bench", NOW_MS - ago_s * 1000)
    return sections(horizon=HorizonSample(float(SECOND), NOW_MS, NEXT_XID, 0, (), (row,)))


def hba(method: str, address: str | None, netmask: str | None = None, type_: str = "host") -> HbaRule:
    return HbaRule(7, type_, ["all"], ["all"], address, netmask, method, None)


def rules(*found_rules: HbaRule, listen: str = "*") -> dict[str, Any]:
    return {**answered("hba", *found_rules), **setting(listen_addresses=listen)}


def scoped(name: str, value: str) -> dict[str, Any]:
    return answered("scoped_settings", ScopedSettings(None, "app", [f"{name}={value}"]))


def disk(rotational: bool | None, *, nvme: bool = False, virtual: bool = False) -> dict[str, Any]:
    queue = Disk("sda", rotational, nvme, virtual, False)
    return {"machine": details(queues=(queue,))}


def clients(number: int, scale: int | None) -> dict[str, Any]:
    state = DatabaseState("bench", [], scale, False, None)
    return {
        **answered("database", state),
        "activity": [session(pid, application_name="pgbench") for pid in range(number)],
    }


def older(days: float) -> dict[str, Any]:
    """Counters of so many days."""
    since = NOW_MS - int(days * DAY_MS)
    reset = {"wal": wal(stats_reset_ms=since), "checkpoints": checkpoints(stats_reset_ms=since)}
    return {"postgres": reset, "server": {"started_ms": RESET_MS}}
