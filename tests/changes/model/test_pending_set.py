"""Which sets go back by themselves, and whether the process that reverts them is there."""

from __future__ import annotations

import os
import socket

import pytest
from msgspec.structs import replace

from pgtop_tune.changes.model.change import ChangeState, ParameterChange
from pgtop_tune.changes.model.pending_set import Holder, SetOwner, holder_of, outlived_losses, pending_sets
from pgtop_tune.process.process_key import own_key

HERE = socket.gethostname()
GONE = replace(own_key(), start_ticks=own_key().start_ticks - 1)
BEFORE_BOOT = replace(own_key(), boot_id="before")
CONTAINER = replace(own_key(), namespace="pid:[1]")


def change(number: int, **more: object) -> ParameterChange:
    values: dict[str, object] = {
        "id": f"c{number}", "at_ms": 0, "name": "work_mem", "value": "8MB", "shown_before": "4MB",
        "auto_conf_before": None, "source_before": "default", "state": ChangeState.APPLIED, "by": f"ann@{HERE}, 1",
    }  # fmt: skip
    return ParameterChange(**(values | more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("owner", "holder"),
    [
        (SetOwner("s", f"ann@{HERE}, 1", own_key(), GONE), Holder.PROGRAM),
        (SetOwner("s", f"ann@{HERE}, 1", GONE, own_key()), Holder.WATCHDOG),
        (SetOwner("s", f"ann@{HERE}, 1", GONE, GONE), Holder.NOBODY),
        (SetOwner("s", f"ann@{HERE}, 1", GONE), Holder.NOBODY),
        (SetOwner("s", f"ann@{HERE}, 1", GONE, own_key(), left_alone=True), Holder.LEFT_ALONE),
        (SetOwner("s", f"ann@{HERE}, 1", own_key(), GONE, left_alone=True), Holder.NOBODY),
        (SetOwner("s", f"ann@{HERE}, 1", BEFORE_BOOT, BEFORE_BOOT), Holder.NOBODY),
        (SetOwner("s", "ann@another-machine, 1", BEFORE_BOOT, BEFORE_BOOT), Holder.ELSEWHERE),
        # A container of this name that hides /proc does not know the boot: its program may well run.
        (SetOwner("s", f"ann@{HERE}, 1", replace(own_key(), boot_id=""), GONE), Holder.ELSEWHERE),
        (SetOwner("s", "ann@a-container, 1", CONTAINER, CONTAINER), Holder.ELSEWHERE),
    ],
)
def test_the_holder_is_the_process_that_reverts_the_set(owner: SetOwner, holder: Holder) -> None:
    assert holder_of("s", "", {"s": owner}) is holder


@pytest.mark.parametrize(
    ("by", "holder"),
    [
        (f"ann@{HERE}, {os.getpid()}", Holder.PROGRAM),
        (f"ann@{HERE}, {2**22 + 1}", Holder.NOBODY),
        ("ann@another-machine, 1", Holder.ELSEWHERE),
        ("", Holder.ELSEWHERE),
        (f"ann@{HERE}, {'9' * 40}", Holder.ELSEWHERE),
    ],
    # Workers of one run have to collect the same names.
    ids=["this process", "no process", "another machine", "unknown", "no number"],
)
def test_of_a_set_that_an_older_version_made_the_words_decide(by: str, holder: Holder) -> None:
    assert holder_of("s", by, {}) is holder


def test_sets_with_a_deadline_are_pending_until_somebody_keeps_them() -> None:
    pending = pending_sets(
        [
            change(1, set_id="a", kept=False, until_ms=5_000),
            change(2, set_id="a", kept=False, until_ms=4_000),
            change(3, set_id="b"),
            change(4, kept=False, until_ms=9_000),
        ],
        {"a": SetOwner("a", "ann@db, 1", GONE, trip_wires=("p99>50ms",))},
    )
    assert [(each.set_id, each.until_ms, len(each.changes)) for each in pending] == [("a", 4_000, 2), ("c4", 9_000, 1)]
    assert pending[0].owner.trip_wires == ("p99>50ms",)
    assert (pending[0].adoptable(3_999, to_hold=False), pending[0].adoptable(4_000, to_hold=True)) == (True, False)
    alone = replace(pending[0], holder=Holder.LEFT_ALONE)
    assert (alone.adoptable(0, to_hold=False), alone.adoptable(0, to_hold=True)) == (False, True)


def test_what_can_lose_data_outlives_its_program_only_where_it_was_confirmed_and_nobody_holds_it() -> None:
    changes = [
        change(1, set_id="gone", loss="data"),
        change(2, set_id="here", loss="data"),
        change(3, set_id="gone"),
        change(4, set_id="gone", loss="data", kept=False, until_ms=1),
    ]
    owners = {"gone": SetOwner("gone", "", GONE), "here": SetOwner("here", "", own_key())}
    assert [each.id for each in outlived_losses(changes, owners)] == ["c1"]
