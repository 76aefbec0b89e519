"""The journal of a search: a named one that cannot be used is told with its reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.base.errors import JournalProblem, UsageProblem
from pgtop_tune.experiment.plan.results import ExperimentLog, new_directory
from pgtop_tune.experiment.slo.kept_search import (
    KIND,
    SearchSubject,
    check_same,
    check_same_beginning,
    kept_search,
    write_search,
)
from pgtop_tune.experiment.slo.search import SearchPlan

SUBJECT = SearchSubject(server="1", objective="p95 < 20ms", load="read.sql", confirm_s=60)


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with ExperimentLog(new_directory(KIND)) as log:
        write_search(log, SUBJECT, SearchPlan(start=20.0))
        return log.directory / "journal.jsonl"


def test_a_search_is_found_by_its_name_and_as_the_last(journal: Path) -> None:
    for identity in (journal.parent.name, "last"):
        directory, kept = kept_search(identity)
        assert (directory, kept.subject, kept.ended) == (journal.parent, SUBJECT, False)


def test_another_length_of_the_runs_that_confirm_is_told_in_words(journal: Path) -> None:
    with pytest.raises(UsageProblem, match="has another length of the runs that confirm, in seconds: 60"):
        check_same(kept_search("last")[1], replace(SUBJECT, confirm_s=90))


def test_another_beginning_is_told_and_one_that_was_not_given_is_that_of_the_journal(journal: Path) -> None:
    kept = kept_search("last")[1]
    check_same_beginning(kept, None, 1)
    check_same_beginning(kept, 20.0, 1)
    with pytest.raises(UsageProblem, match="has another first rate: 20"):
        check_same_beginning(kept, 30.0, 1)
    with pytest.raises(UsageProblem, match="has another number of clients: 1"):
        check_same_beginning(kept, None, 2)


def test_a_journal_that_others_can_write_is_refused_with_that_reason(journal: Path) -> None:
    journal.chmod(0o666)
    with pytest.raises(JournalProblem, match="writable by others"):
        kept_search(journal.parent.name)
    with pytest.raises(UsageProblem, match="there is no search"):
        kept_search("last")


@pytest.mark.parametrize("content", ["", '{"kind": "slo"}\n', '{"kind": "slo", "plan": {"start": "much"}}\n'])
def test_a_damaged_journal_is_told(journal: Path, content: str) -> None:
    journal.write_text(content, encoding="utf-8")
    with pytest.raises(UsageProblem, match="is damaged"):
        kept_search(journal.parent.name)
