"""What is said before a restart, over facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest
from msgspec.structs import replace

from pgtop_tune.changes.model.change_set import RestartCheck, RestartVerdict
from pgtop_tune.changes.start.checks import RestartFacts, checks
from pgtop_tune.changes.start.next_start import ValuesAfter
from pgtop_tune.cluster.dry_start import DryStart
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.host import HugePages
from pgtop_tune.model.postgres import Parameter
from tests.support.frames import parameter

MB: Final = 2**20
GB: Final = 2**30
NOW: Final[Mapping[str, Parameter]] = {
    each.name: each
    for each in (
        parameter("shared_buffers", "16384", "128MB", "8kB"),
        parameter("work_mem", "4096", "4MB", "kB"),
        parameter("max_connections", "100", "100"),
        parameter("autovacuum_max_workers", "3", "3"),
        parameter("huge_pages", "try", "try", vartype="enum"),
        parameter("shared_preload_libraries", "", "", vartype="string"),
    )
}
FACTS: Final = RestartFacts(18, ValuesAfter(NOW, {}), DryStart("", 150 * MB, 75), memory_bytes=16 * GB)


def after(facts: RestartFacts = FACTS, **texts: str) -> RestartFacts:
    return replace(facts, values=ValuesAfter(NOW, texts))


def of(facts: RestartFacts, subject: str) -> RestartCheck | None:
    return next((check for check in checks(facts) if check.subject == subject), None)


def test_a_start_that_the_server_refuses_is_impossible_in_its_own_words() -> None:
    facts = replace(FACTS, dry=DryStart('FATAL:  could not access file "nonsense": No such file or directory'))
    found = of(facts, "files")
    assert found is not None
    assert found.verdict is RestartVerdict.IMPOSSIBLE
    assert "nonsense" in found.words


def test_what_cannot_be_tried_is_not_known() -> None:
    facts = replace(FACTS, dry=Unavailable(Reason.NOT_LOCAL, "another machine"), memory_bytes=None)
    assert [(check.subject, check.verdict) for check in checks(facts)] == [
        ("files", RestartVerdict.UNKNOWN),
        ("shared memory", RestartVerdict.UNKNOWN),
    ]


@pytest.mark.parametrize(
    ("wish", "free", "held", "verdict"),
    [
        ("on", 74, 0, RestartVerdict.IMPOSSIBLE),
        ("on", 75, 0, RestartVerdict.FINE),
        ("on", 10, 65, RestartVerdict.FINE),
        ("try", 74, 0, RestartVerdict.DOUBTFUL),
        ("try", 80, 0, RestartVerdict.FINE),
    ],
)
def test_huge_pages_are_counted_with_those_the_old_server_gives_back(
    wish: str, free: int, held: int, verdict: RestartVerdict
) -> None:
    facts = replace(after(huge_pages=wish), pool=HugePages(2 * MB, 80, free, 0, 0), held_pages=held)
    found = of(facts, "huge pages")
    assert found is not None
    assert found.verdict is verdict


def test_how_many_huge_pages_would_do_is_said() -> None:
    facts = replace(after(huge_pages="on"), pool=HugePages(2 * MB, 40, 30, 5, 0))
    found = of(facts, "huge pages")
    assert found is not None
    assert found.hint == "vm.nr_hugepages=90 makes room; if memory is fragmented, set it at boot"


@pytest.mark.parametrize(
    ("size", "verdict"),
    [(17 * GB, RestartVerdict.IMPOSSIBLE), (14 * GB, RestartVerdict.DOUBTFUL), (4 * GB, RestartVerdict.FINE)],
)
def test_shared_memory_has_to_fit_into_the_memory(size: int, verdict: RestartVerdict) -> None:
    found = of(replace(FACTS, dry=DryStart("", size, None)), "shared memory")
    assert found is not None
    assert found.verdict is verdict


@pytest.mark.parametrize(
    ("wish", "free", "verdict"),
    [
        ("on", 4000, RestartVerdict.FINE),
        ("try", 4000, RestartVerdict.FINE),
        ("try", 100, RestartVerdict.IMPOSSIBLE),
        ("off", 4000, RestartVerdict.IMPOSSIBLE),
    ],
)
def test_the_limit_of_a_group_does_not_count_shared_memory_in_huge_pages(
    wish: str, free: int, verdict: RestartVerdict
) -> None:
    """Of Kubernetes: limits of memory and of hugepages-2Mi stand beside each other."""
    facts = replace(after(huge_pages=wish), dry=DryStart("", 6 * GB, 3072), group_bytes=4 * GB)
    found = of(replace(facts, pool=HugePages(2 * MB, 4000, free, 0, 0)), "shared memory")
    assert found is not None
    assert found.verdict is verdict


def test_without_a_trial_shared_memory_is_what_is_asked_and_a_little_more() -> None:
    facts = replace(after(shared_buffers="15.9GB"), dry=Unavailable(Reason.NO_PERMISSION, "hidden"))
    found = of(facts, "shared memory")
    assert found is not None
    assert found.verdict is RestartVerdict.IMPOSSIBLE


def test_values_without_a_unit_are_in_the_servers_own() -> None:
    assert after(shared_buffers="16384").values.number("shared_buffers") == 128 * MB
    assert after(shared_buffers="1GB").values.number("shared_buffers") == GB


@pytest.mark.parametrize("kilobytes", [4, 16, 32])
def test_a_block_has_the_size_that_the_server_was_built_with(kilobytes: int) -> None:
    row = parameter("shared_buffers", "1024", f"{kilobytes}MB", f"{kilobytes}kB")
    assert ValuesAfter({"shared_buffers": row}, {}).number("shared_buffers") == kilobytes * MB
    assert ValuesAfter({"shared_buffers": row}, {"shared_buffers": "1GB"}).number("shared_buffers") == GB


@pytest.mark.parametrize(
    ("slots", "name", "verdict"),
    [
        ("16", "autovacuum_worker_slots", RestartVerdict.IMPOSSIBLE),
        ("16", "autovacuum_max_workers", RestartVerdict.FINE),
        (None, "autovacuum_max_workers", RestartVerdict.IMPOSSIBLE),
    ],
)
def test_locks_are_for_slots_of_autovacuum_where_there_are_any(
    slots: str | None, name: str, verdict: RestartVerdict
) -> None:
    rows = [parameter("max_locks_per_transaction", "10000", "10000")]
    rows += [parameter("autovacuum_worker_slots", slots, slots)] if slots else []
    values = ValuesAfter({**NOW, **{row.name: row for row in rows}}, {name: "20000"})
    found = of(replace(FACTS, values=values, dry=Unavailable(Reason.NOT_LOCAL, "another machine")), "shared memory")
    assert found is not None
    assert found.verdict is verdict


def test_connections_that_would_not_fit_are_doubtful() -> None:
    found = of(after(max_connections="5000"), "memory")
    assert found is not None
    assert found.verdict is RestartVerdict.DOUBTFUL
    fine = of(FACTS, "memory")
    assert fine is not None
    assert fine.verdict is RestartVerdict.FINE


@pytest.mark.parametrize(
    ("primary", "value", "verdict"),
    [({"max_connections": 100}, "50", RestartVerdict.IMPOSSIBLE), ({"max_connections": 40}, "50", RestartVerdict.FINE)],
)
def test_a_standby_needs_as_much_as_its_primary(primary: dict[str, int], value: str, verdict: RestartVerdict) -> None:
    found = of(replace(after(max_connections=value), in_recovery=True, primary=primary), "standby")
    assert found is not None
    assert found.verdict is verdict


def test_less_on_a_standby_whose_primary_is_not_known_is_said() -> None:
    found = of(replace(after(max_connections="50"), in_recovery=True, primary={}), "standby")
    assert found is not None
    assert found.verdict is RestartVerdict.UNKNOWN


def test_a_primary_raises_after_its_standbys() -> None:
    found = of(replace(after(max_connections="200"), standbys=2), "standby")
    assert found is not None
    assert (found.verdict, found.hint) == (RestartVerdict.DOUBTFUL, "raise the value on the standbys first")
    assert of(replace(after(max_connections="50"), standbys=2), "standby") is None
