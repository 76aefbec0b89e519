"""A server of a major that nobody knows yet: what still answers is shown, what does not says why."""

from __future__ import annotations

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.postgres import NEWEST_MAJOR, newer_than_known
from pgtop_tune.model.waits import WaitLook
from tests.postgres.conftest import place
from tests.postgres.reading import reading

LACKING = {
    "io": "column s.reuses does not exist",
    "slots": "column s.safe_wal_size does not exist",
}


async def test_a_section_that_lost_a_column_says_so_and_all_others_are_read(newer_server: Throwaway) -> None:
    async with reading(place(newer_server)) as reader:
        facts = await reader.facts()
        assert not isinstance(facts, Unavailable)
        assert facts.version_num // 10_000 == NEWEST_MAJOR + 1
        found = {section.name: await reader.read(section) for section in sections.READ}
        absent = {name: str(each) for name, each in found.items() if isinstance(each, Unavailable)}
        assert absent.pop("server_log").startswith("logging_collector is off")
        assert absent.keys() == LACKING.keys()
        assert {name for name, words in LACKING.items() if words not in absent[name]} == set()
        assert isinstance(await reader.waits(60_000), WaitLook)


def test_the_newest_known_major_and_older_ones_are_not_remarked_upon() -> None:
    assert newer_than_known(NEWEST_MAJOR * 10_000 + 9_999) == newer_than_known(140_000) == ""
    assert newer_than_known(200_000) == "20 is newer than pgtop-tune supports: shown as 19"
