"""What keeps a server from being quiet."""

from __future__ import annotations

from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.steady_state import unrest
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.host import DiskSample
from pgtop_tune.model.postgres import Activity
from tests.support.frames import EPOCH_MS, backend, frame, host_sample, postgres_sample

IDLE_DISKS = DiskSample(1.0, ())


def looks(*backends: object, busy: bool = False) -> Interval:
    frames = []
    for second in (0, 1):
        activity = Activity(float(second), EPOCH_MS, backends)  # type: ignore[arg-type]
        host = host_sample(second) if busy else host_sample(second, disks=IDLE_DISKS)
        frames.append(frame(second, postgres=postgres_sample(second, activity=activity), host=host, load=False))
    return Interval(frames)


def test_idle_sessions_are_quiet() -> None:
    assert unrest(looks(backend(1, EPOCH_MS, state="idle"), backend(2, EPOCH_MS, backend_type="walwriter"))) == ()


def test_whoever_is_at_work_is_named() -> None:
    found = unrest(
        looks(
            backend(1, EPOCH_MS, application_name="shop"),
            backend(2, EPOCH_MS, application_name="", usename="ann"),
            backend(3, EPOCH_MS, backend_type="autovacuum worker", query="autovacuum: VACUUM public.pgbench_accounts"),
        )
    )
    assert found == ("2 other active sessions (shop, ann)", "autovacuum of pgbench_accounts")


def test_a_busy_disk_of_the_server_is_unrest() -> None:
    assert unrest(looks(busy=True)) == ("disk nvme1n1 31 % busy", "disk vda 98 % busy")


def test_a_server_that_does_not_answer_is_not_quiet() -> None:
    assert unrest(Interval((frame(0, postgres=Unavailable(Reason.NO_ANSWER)),))) == ("the server does not answer",)
