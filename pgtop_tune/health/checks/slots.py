"""Replication slots: the WAL and dead rows that they retain for a consumer that may never return."""

from __future__ import annotations

from typing import Final

from pgtop_tune.base.sql_quoting import Sql, composed, literal, quoted
from pgtop_tune.base.units import GB, about
from pgtop_tune.health import needs
from pgtop_tune.health.check import Check, CheckFinding, Evidence, Findings, Fix, Language, Limits, Severity, Threshold
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import by_hand
from pgtop_tune.health.rules import advised, as_shown, on_standby
from pgtop_tune.model.replication import Slot, SlotSample

_GROUP: Final = "replication slots"
_VIEW: Final = "pg_replication_slots"


def _drop(facts: CheckFacts, slot: Slot) -> Fix:
    make = "SELECT pg_create_physical_replication_slot({name}{options});"
    options = ", immediately_reserve => true" if slot.restart_lsn_bytes is not None else ""
    if slot.slot_type == "logical":
        make = "SELECT pg_create_logical_replication_slot({name}, {plugin}{options});"
        kinds = ("twophase", slot.two_phase), ("failover", slot.failover)
        options = "".join(f", {option} => true" for option, is_set in kinds if is_set)
    undone_in = f"; run the undo in database {quoted(slot.database)}" if slot.database else ""
    if slot.database and on_standby(facts):
        undone_in += ", where it waits for SELECT pg_log_standby_snapshot(); on the primary"
    return Fix(
        do=composed("SELECT pg_drop_replication_slot({name});", name=literal(slot.slot_name)),
        undo=composed(make, name=literal(slot.slot_name), plugin=literal(slot.plugin or ""), options=Sql(options)),
        language=Language.SQL,
        remark=f"only if the slot is no longer needed: its consumer must start over{undone_in}",
    )


def _catch_up(slot: Slot) -> Fix:
    """Return the manual fix for a slot in use: the server refuses to drop it, and its consumer may still catch up."""
    return by_hand(
        f"Find out why the consumer of {slot.slot_name} (process {slot.active_pid} here) falls behind; a larger "
        "max_slot_wal_keep_size gives it time, if the WAL disk has space."
    )


def _kept_bytes(sample: SlotSample, slot: Slot) -> int | None:
    """Return the WAL from the slot's position to the end; None where one of them is not known."""
    if sample.lsn_bytes is None or slot.restart_lsn_bytes is None:
        return None
    return max(sample.lsn_bytes - slot.restart_lsn_bytes, 0)


def _copied(facts: CheckFacts, slot: Slot) -> bool:
    """Return whether a slot is a copy of the primary's, unused until this standby is promoted."""
    return bool(slot.failover) and on_standby(facts)


def _not_here(slot: Slot) -> Fix:
    return by_hand(
        f"Find out on the primary why the consumer of {slot.slot_name} falls behind: this slot is a copy of the "
        "primary's, and cannot be dropped on a standby."
    )


def _retained(facts: CheckFacts, limits: Limits) -> Findings:
    sample = facts.have(needs.SLOTS)
    for slot in sample.slots:
        kept = _kept_bytes(sample, slot)
        if kept is not None and kept >= limits["bytes"]:
            idle = "not in use" if slot.active_pid is None else f"in use by process {slot.active_pid}"
            yield CheckFinding(
                severity=Severity.HIGH if kept >= limits["high"] else Severity.WARNING,
                says=f"slot {slot.slot_name} keeps {about(kept)} of WAL; {idle}",
                evidence=(Evidence(f"{slot.slot_name}: {kept} bytes behind the end of WAL", f"{_VIEW}.restart_lsn"),),
                fix=_not_here(slot)
                if _copied(facts, slot)
                else _drop(facts, slot)
                if slot.active_pid is None
                else _catch_up(slot),
                subject=slot.slot_name,
            )


def _state(facts: CheckFacts, limits: Limits) -> Findings:
    for slot in facts.have(needs.SLOTS).slots:
        if _copied(facts, slot):
            continue
        if slot.wal_status in ("lost", "unreserved") or slot.invalid:
            condition = slot.invalid or slot.wal_status or ""
            yield CheckFinding(
                severity=Severity.HIGH,
                says=f"slot {slot.slot_name} is {condition}: its consumer cannot continue, or will soon fail",
                evidence=(Evidence(f"{slot.slot_name}: wal_status {slot.wal_status}", f"{_VIEW}.wal_status"),),
                fix=_drop(facts, slot) if slot.active_pid is None else _catch_up(slot),
                subject=slot.slot_name,
            )
        elif slot.active_pid is None and not slot.temporary:
            yield CheckFinding(
                says=f"slot {slot.slot_name} is not in use{_keeping(slot)}",
                evidence=(Evidence(f"{slot.slot_name}: inactive", f"{_VIEW}.active_pid"),),
                fix=_drop(facts, slot),
                subject=slot.slot_name,
            )


def _keeping(slot: Slot) -> str:
    """Return ", and keeps …"; a physical slot keeps nothing before its consumer connects for the first time."""
    kept = (("WAL", slot.restart_lsn_bytes), ("dead rows", slot.xmin or slot.catalog_xmin))
    resources = " and ".join(resource for resource, since in kept if since is not None)
    return f", and prevents removal of {resources}" if resources else ""


def _any(slots: int) -> str:
    return "the only slot" if slots == 1 else f"any of {slots} slots"


def _unlimited(facts: CheckFacts, limits: Limits) -> Findings:
    parameters = needs.parameters(facts)
    slots = [slot for slot in facts.have(needs.SLOTS).slots if not slot.temporary]
    if not slots or parameters.number("max_slot_wal_keep_size") >= 0:
        return
    yield CheckFinding(
        says=f"max_slot_wal_keep_size is -1: {_any(len(slots))} may fill the WAL disk and stop the server",
        evidence=(
            as_shown(facts, "max_slot_wal_keep_size"),
            Evidence(f"{len(slots)} {'slot' if len(slots) == 1 else 'slots'}", f"{_VIEW}.slot_name"),
        ),
        fix=advised(facts, "max_slot_wal_keep_size"),
    )


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="SLOT-01",
        group=_GROUP,
        title="WAL kept by slots",
        why="A slot without its consumer keeps all WAL, until the disk is full and the server stops.",
        severity=Severity.HIGH,
        page="view-pg-replication-slots.html",
        needs=(needs.SERVER, needs.SLOTS),
        look=_retained,
        thresholds=(
            Threshold("bytes", 1 * GB, "bytes", "a warning from this value"),
            Threshold("high", 5 * GB, "bytes", "a high finding from this value"),
        ),
    ),
    Check(
        id="SLOT-02",
        group=_GROUP,
        title="unused slots",
        why="A forgotten slot costs nothing until it stops the server.",
        severity=Severity.HIGH,
        page="view-pg-replication-slots.html",
        needs=(needs.SERVER, needs.SLOTS),
        look=_state,
    ),
    Check(
        id="SLOT-03",
        group=_GROUP,
        title="WAL limit of slots",
        why="max_slot_wal_keep_size sacrifices a slow standby before the disk is full.",
        page="runtime-config-replication.html#GUC-MAX-SLOT-WAL-KEEP-SIZE",
        needs=(needs.SERVER, needs.PARAMETERS, needs.SLOTS),
        look=_unlimited,
    ),
)
