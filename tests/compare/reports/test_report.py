"""Reports: the tables the field makes by hand, and files in which foreign words are never markup."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.base.tables import Table
from pgtop_tune.cli.commands.bench import data_sets
from pgtop_tune.cli.options import TableFormat
from pgtop_tune.compare.reports.report import report_chapters, run_sheets, search_sheet
from pgtop_tune.compare.reports.sheets import Sheet
from pgtop_tune.compare.reports.written import report_html, report_markdown
from pgtop_tune.compare.sides.from_records import material_of_records
from pgtop_tune.compare.sides.material import Fact, FactKind, LoadKey, Material
from pgtop_tune.compare.sides.named_sides import open_material
from pgtop_tune.metrics.load import P99
from pgtop_tune.metrics.percentiles import merge
from pgtop_tune.model.bench import BenchReport, StatementReport
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.model.machine import CgroupSample
from pgtop_tune.model.outage import AcknowledgedCommits, ClientCommits, OutageResult, OutageRow, OutageSpan
from pgtop_tune.model.run_result import Doubt, RunResult, RunVerdict, as_json
from pgtop_tune.model.setup import DiskSetup, MachineSetup, MountSetup, SetValue
from tests.support.frames import EPOCH_MS
from tests.support.results import asked, failed, result
from tests.support.sides import frames, repeated, side, with_parameter

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>|`[x](http://evil)\x1b[31m"


def records(name: str, *runs: RunResult) -> Material:
    return material_of_records([as_json(run) for run in runs], name)


def table(sheets: Sequence[Sheet], heading: str) -> Table:
    (found,) = (sheet.table for sheet in sheets if sheet.heading == heading and sheet.table is not None)
    return found


def column(found: Table, head: str) -> dict[str, str]:
    place = found.heads.index(head)
    return {row[0]: row[place] for row in found.rows}


def test_percentiles_of_records_are_of_their_histograms_together() -> None:
    """Not means of the percentiles of seconds, or of runs."""
    made = [as_json(result(run={"started_ms": EPOCH_MS})) for _ in range(2)]
    runs = material_of_records(made, "A").runs
    merged = [merge(run.gathered.latencies()) for run in runs]
    assert [each.logged for each in merged] == [record["percentiles"]["logged"] for record in made]
    assert P99.of(merged[0]) == pytest.approx(made[0]["percentiles"]["p99_ms"], abs=0.001)
    del made[1]["by_second"]
    assert not material_of_records(made[1:], "A").runs[0].gathered.latencies()


def test_a_comparison_says_of_which_side_quick_transactions_were_only_counted() -> None:
    counted = Doubt("LOG-COUNTED", RunVerdict.NOTE, "percentiles below 4.0 ms rest on 5 of 9 transactions", "")
    loop = Doubt("CLOSED-LOOP", RunVerdict.NOTE, "no rate", "")
    sides = [records(name, replace(result(), doubts=doubts)) for name, doubts in (("A", (loop,)), ("B", (counted,)))]
    text = report_markdown("counted", report_chapters(sides))
    assert "B: note LOG-COUNTED: percentiles below 4.0 ms rest on 5 of 9 transactions" in text
    assert "A: note" not in text


def test_a_tuning_round_has_configurations_and_loads_across_and_figures_down() -> None:
    sides = [
        records(name, *(result(asked(load), tps=tps) for load, tps in zip(LOADS, row, strict=True)))
        for name, row in (("default", (764.68, 5243.06, 934.76)), ("tuned", (1154.13, 3855.19, 1156.20)))
    ]
    found = table(run_sheets(sides), "runs")
    assert found.heads == ("", *(f"{name}: {load}" for name in ("default", "tuned") for load in LOADS))
    assert column(found, "default: select-only")["tps"] == "5243.06"
    assert column(found, "tuned: select-only")["tps"] == "3855.19"
    assert column(found, "tuned: tpcb-like")["connect, ms"] == "12.500"


LOADS = ("tpcb-like", "select-only", "simple-update")


def test_endpoints_stand_below_each_other_and_a_failed_one_has_its_reason() -> None:
    runs = (
        result(asked(endpoint="PostgreSQL", clients=500), tps=3630.26),
        failed(
            asked(endpoint="PostgreSQL", clients=600),
            "FATAL:  remaining connection slots are reserved",
            "pgbench: error: could not create connection for client 297\n",
        ),
        result(asked(endpoint="PgBouncer", clients=500), tps=2571.16),
    )
    found = table(run_sheets([records("endpoints", *runs)]), "runs")
    assert found.heads[:2] == ("endpoint", "clients")
    rows = {(row[0], row[1]): row[-1] for row in found.rows}
    assert rows["PostgreSQL", "500"] == "3630.26"
    assert rows["PostgreSQL", "600"] == "failed: remaining connection slots are reserved"
    assert rows["PgBouncer", "500"] == "2571.16"


def test_outages_have_a_row_each_and_runs_without_one_say_so() -> None:
    span = OutageSpan(first_error_ms=1_000.0, lost_clients=4, reason="a crash\x1b[2J", first_commit_ms=1_500.0)
    row = OutageRow(span=span, down_s=0.5, recovered_ms=None, recovery="not back", failed_transactions=4)
    commits = AcknowledgedCommits((ClientCommits(group=1, client=0, acknowledged=9, committed=7),))
    through = replace(result(), outage=OutageResult((row, row), commits=commits))
    calm = replace(result(), outage=OutageResult(silent_s=4.0))
    sheets = run_sheets([records("before", through), records("after", calm, result())])
    [sheet] = [sheet for sheet in sheets if sheet.heading == "outages"]
    assert sheet.table is not None
    assert [row[:2] for row in sheet.table.rows] == [("1 before: tpcb-like ×16", "1"), ("1 before: tpcb-like ×16", "2")]
    assert sheet.table.rows[0][sheet.table.heads.index("down s")] == "0.500"
    notes = "\n".join(sheet.notes)
    assert "1 before: tpcb-like ×16: missing commits: 2 of 9 acknowledged" in notes
    assert "2 after: tpcb-like ×16: no client was lost" in notes
    assert "2 after: tpcb-like ×16: no transaction ended for 4.0 s, and no client was lost" in notes
    assert "\x1b" not in notes
    assert "outages" not in {sheet.heading for sheet in run_sheets([records("without", result())])}


def test_a_study_over_clients_is_a_matrix_and_a_chart() -> None:
    sides = [
        records(name, *(result(asked(clients=clients), tps=float(clients * gain)) for clients in (8, 16, 32)))
        for name, gain in (("4 kB", 10), ("2 MB", 12))
    ]
    found = table(run_sheets(sides), "tps over clients")
    assert found.heads == ("load", "clients", "4 kB", "2 MB")
    assert found.rows[2] == ("tpcb-like", "32", "320.00", "384.00")
    page = report_html("study", report_chapters(sides))
    assert page.count('<circle class="dot') == 6


def test_a_final_check_has_each_statement_with_its_change() -> None:
    def checked(ms: float) -> RunResult:
        statements = (StatementReport("UPDATE pgbench_branches", ms), StatementReport("END", 2 * ms))
        return replace(result(), report=BenchReport(statements=statements))

    found = table(run_sheets([records("before", checked(3.0)), records("after", checked(2.7))]), "statements")
    assert found.heads == ("load", "statement, ms", "before", "after", "change")
    assert found.rows[0][1:] == ("UPDATE pgbench_branches", "3.000", "2.700", "-10.0 %")


def step(name: str, level: float, **settings: str) -> Material:
    found = frames(level, name)
    for parameter, value in settings.items():
        found = with_parameter(found, parameter, value)
    return side(found, name)


def test_a_search_has_its_path_each_step_against_the_best_before_it() -> None:
    sides = [
        step("start", 900.0),
        step("doubled", 1080.0, max_wal_size="64GB"),
        step("again", 900.0, max_wal_size="32GB"),
        step("other", 1085.0, max_wal_size="64GB", checkpoint_timeout="30min"),
    ]
    found = search_sheet(sides)
    assert found is not None
    assert found.table is not None
    rows = {row[0]: row for row in found.table.rows}
    assert rows["doubled"][1].endswith("-> 64GB")
    assert rows["doubled"][-2:] == ("better", "keep")
    assert rows["again"][1] == "max_wal_size 64GB -> 32GB"
    assert rows["again"][-2:] == ("worse", "revert to doubled")
    assert rows["other"][-1] == "revert to doubled"
    assert "best: doubled" in found.notes[0]
    assert "search path" in report_markdown("search", report_chapters(sides))


def test_configurations_that_differ_in_much_are_no_search() -> None:
    tuned = step("tuned", 1200.0, max_wal_size="64GB", checkpoint_timeout="30min", max_connections="200")
    assert search_sheet([step("default", 1000.0), tuned, tuned]) is None


def test_seconds_of_making_data_sets_stand_side_by_side(tmp_path: Path) -> None:
    for name, seconds in (("default", 381.29), ("tuned", 480.64)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(json.dumps(as_json(result())), encoding="ascii")
        steps = (("server-side generate", seconds), ("vacuum", 2.0))
        told = data_sets.step_lines(
            data_sets.CreatedDataSet("pgbench", "scale 1000", {}, steps, seconds + 2), TableFormat.JSON
        )
        (tmp_path / name / "init.json").write_text("\n".join(told), encoding="utf-8")
    found = table(run_sheets([open_material(tmp_path / name, name) for name in ("default", "tuned")]), "data sets")
    assert found.heads == ("init step, s", "default: scale 1000", "tuned: scale 1000")
    assert found.rows[0] == ("server-side generate", "381.29", "480.64")
    assert found.rows[-1] == ("total", "383.29", "482.64")


SETUP = MachineSetup(
    1.0, "EPYC", 2, "KVM", "tsc", (SetValue("vm.swappiness", "5"),),
    (DiskSetup("vda", ("data",), "", 256 << 30, False, "write back", "none", 128, 256),),
    (MountSetup("data", "xfs", ("noatime", "rw")),),
)  # fmt: skip
LIMITS = CgroupSample(
    1.0, "/db", 2, 8 << 30, None, None, None, None, 2.0, None, None, None, None, None, None, None, None
)


def test_a_record_tells_of_its_surroundings_what_a_recording_does() -> None:
    made = result(host=lambda second: {"setup": SETUP, "cgroup": LIMITS})
    kept = json.loads(json.dumps(as_json(made)))
    facts = {fact.name: fact.value for fact in material_of_records([kept], "a").facts}
    assert facts["CPU model"] == "EPYC"
    assert facts["clock source"] == "tsc"
    assert facts["vm.swappiness"] == "5"
    assert facts["scheduler of the disk below data"] == "none"
    assert facts["mount options of data"] == "noatime,rw"
    assert facts["CPU limit"] == "2 CPUs"
    kept["host"]["setup"] = {"at_s": "soon"}
    assert "clock source" not in {fact.name for fact in material_of_records([kept], "a").facts}


def hostile(words: str = HOSTILE) -> Material:
    made = side(frames(seconds=60), words)
    run = made.runs[0]
    run.key = LoadKey(words, 16)
    run.steady, run.steady_words = False, words
    facts = tuple(replace(fact, name=words, value=words, source=words) for fact in made.facts[:5])
    events = (Event(EPOCH_MS + 5_000, EventKind.PARAMETER, words), Event(EPOCH_MS, EventKind.NOTE, words))
    return replace(made, facts=(*facts, Fact("parameters", words, words, FactKind.SETTING)), events=events)


class Seen(HTMLParser):
    """Elements and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.text = ""
        self.shape: list[tuple[str, tuple[tuple[str, str | None], ...]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.shape.append((tag, tuple((name, None if name == "aria-label" else value) for name, value in attrs)))
        self.attributes |= {name for name, _ in attrs}
        if tag not in ("meta", "line", "rect", "polyline", "polygon", "circle") or self.get_starttag_text() is None:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        self.text += data


def test_words_of_strangers_are_text_in_a_page_that_loads_nothing() -> None:
    material = hostile()
    page = report_html(HOSTILE, report_chapters([material, material]))
    seen = Seen()
    seen.feed(page)
    assert not seen.tags & {"script", "img", "a", "link", "iframe", "object", "use", "image", "foreignobject"}
    assert not {name for name in seen.attributes if name.startswith("on") or name in ("src", "href", "srcset")}
    assert "alert(1)" in seen.text
    assert "\x1b" not in page
    assert not re.search(r"url\(|@import", page)


@pytest.mark.parametrize(
    "words",
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "' onload='alert(1)",
        "</title></svg><svg onload=a>",
        "failed: <script>alert(1)</script>",
        "  <b>&lt;b&gt;</b>",
        "]]><!--",
        "&#60;script&#62;",
    ],
)
def test_no_element_and_no_attribute_comes_of_words_of_strangers(words: str) -> None:
    """The page is element for element that of harmless words of the same kind."""
    prefix = "failed: " if words.startswith("failed: ") else "  " if words.startswith("  ") else ""
    pages = []
    for each in (words, prefix + "x" * (len(words) - len(prefix))):
        seen = Seen()
        material = hostile(each)
        seen.feed(report_html(each, report_chapters([material, material])))
        pages.append(seen)
    found, harmless = pages
    assert found.shape == harmless.shape
    assert words.strip() in found.text


def test_words_of_strangers_are_text_in_markdown() -> None:
    material = hostile()
    text = report_markdown("report", report_chapters([material, material]))
    assert "<script>" not in text
    assert "<img" not in text
    assert "\x1b" not in text
    assert not re.search(r"(?<!\\)\[x", text)


def test_a_comparison_says_first_what_was_tested_and_what_came_out() -> None:
    before, after = frames(1000.0, "a"), with_parameter(frames(1100.0, "b"), "max_wal_size", "3GB")
    page = report_html("change", report_chapters([side(before, "before"), side(after, "after")]))
    seen = Seen()
    seen.feed(page)
    assert "after against before, under test: max_wal_size" in seen.text
    assert '<td class="open">undecided</td>' in page
    assert 'class="good"' not in page.partition("<body>")[2]
    assert "pgtop-tune compare settle/A settle/B" in seen.text
    assert '<td class="good">better</td>' in report_html("change", report_chapters(repeated(1000.0, 1100.0)))
    assert page.count("<svg") >= 5
    assert seen.open in ([], ["html"], ["html", "body"])


def test_a_side_alone_is_a_report_as_well() -> None:
    page = report_html("one", report_chapters([side(frames(seconds=60), "one")]))
    assert "tps" in page
    assert "<details>" in page
