"""The findings of a diagnosis as rows, for `show finding`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final

from msgspec import Struct, to_builtins

from pgtop_tune.base.units import COUNTS, GB, KB, MB, TIMES, UNKNOWN, ms, quantity
from pgtop_tune.cli.commands.show.session import ShownSession
from pgtop_tune.diagnosis.finding import Finding
from pgtop_tune.export.tidy import moment_text
from pgtop_tune.model.absence import NOT_YET, Unavailable
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.pages.page import PageColumn, PageTable, figure, foreign, whole, word

_NUMBER: Final = re.compile(
    r"(?:at most |in )?(?P<number>-?[\d,]+(?:\.\d+)?)(?:(?P<times>[kMG])(?![A-Za-z]))?"
    r"(?: ?(?P<unit>%|ms|s|B|kB|MB|GB|TB)(?![A-Za-z]))?(?P<per_s>/s)?(?:,? .*)?"
)
_BYTES: Final = {"B": 1, "kB": KB, "MB": MB, "GB": GB, "TB": 1024 * GB}


class PlacedFinding(Struct, frozen=True):
    """A finding and its place, from 1."""

    rank: int
    finding: Finding


def _rows(session: Session) -> Sequence[PlacedFinding] | Unavailable:
    frame = session.now
    diagnosis = session.diagnosis if isinstance(session, ShownSession) else None
    if frame is None or diagnosis is None:
        return NOT_YET
    if isinstance(frame.postgres, Unavailable):
        return frame.postgres
    return [PlacedFinding(rank, finding) for rank, finding in enumerate(diagnosis.findings, 1)]


def evidence_value(text: str) -> dict[str, Any]:
    """Return text, value and unit of evidence: "5.91 MB/s" is 6197084.16 bytes/s, "3m12s" 192 s, "2.0 of 4 CPUs" 2;
    words have no value."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        lasting_s = quantity(text, TIMES)
        return {"text": text, "value": lasting_s, "unit": "" if lasting_s is None else "s"}
    unit, per_s = match["unit"] or "", match["per_s"] or ""
    value = float(match["number"].replace(",", "")) * COUNTS[match["times"] or ""]
    if unit in _BYTES:
        value, unit = value * _BYTES[unit], "bytes"
    return {"text": text, "value": value, "unit": f"{unit or 1}{per_s}" if per_s else unit}


def _evidence(row: PlacedFinding) -> list[dict[str, Any]]:
    return [{"label": label, **evidence_value(text)} for label, text in row.finding.evidence]


def _actions(row: PlacedFinding) -> list[dict[str, Any]]:
    return [to_builtins(deed) for deed in row.finding.deeds]


def _list_text(texts: Sequence[str]) -> str:
    return "; ".join(texts) or UNKNOWN


_COLUMNS: Final = (
    figure("rank", "rank", 4, attrgetter("rank"), whole, "Place: 1 is the bottleneck of the first line.", "diagnosis"),
    word("finding", "finding", 40, foreign(attrgetter("finding.sentence")),
         "The whole sentence, with its confidence and numbers.", "diagnosis", elastic=True,
         raw=attrgetter("finding.sentence")),
    word("short", "short", 40, foreign(attrgetter("finding.short")), "The same in at most 66 characters.", "diagnosis",
         visible=False, raw=attrgetter("finding.short")),
    word("rule", "rule", 14, attrgetter("finding.rule"), "Stable name of the rule.", "diagnosis/rules"),
    word("kind", "kind", 8, lambda row: str(row.finding.kind), "outage, limit, latency or note.", "diagnosis"),
    word("confidence", "confidence", 12, lambda row: str(row.finding.confidence),
         "is, most likely, perhaps, or not clear.", "diagnosis"),
    figure("share", "share", 6, attrgetter("finding.share"), lambda value: UNKNOWN if value is None else f"{value:.2f}",
           "Share of a transaction's or the server's time, or the used part of a limit; from 0 to 1.", "diagnosis"),
    figure("impact", "impact", 8, attrgetter("finding.impact_ms"), ms,
           "Time that it takes of each transaction, at most.", "diagnosis"),
    word("culprit", "culprit", 20, foreign(attrgetter("finding.culprit")), "Session, statement, slot or table.",
         "diagnosis"),
    word("statement", "statement", 20, foreign(attrgetter("finding.statement")), "Beginning of its statement.",
         "diagnosis", visible=False),
    word("page", "page", 4, attrgetter("finding.page"), "Key of the page with the evidence.", "diagnosis"),
    word("since", "since", 24, lambda row: moment_text(row.finding.since_ms), "Moment at which it began, UTC.",
         "diagnosis", visible=False),
    PageColumn("evidence", "evidence", 30,
               lambda row: _list_text([f"{label} {text}" for label, text in row.finding.evidence]),
               "Labels with their values; a value in words has no number. Numbers have three digits, as their texts.",
               "diagnosis", visible=False, raw=_evidence),
    word("next-step", "next step", 30, foreign(attrgetter("finding.next_step")),
         "Advice, and an observation that would refute it.", "diagnosis", visible=False),
    PageColumn("actions", "actions", 30,
               lambda row: _list_text([f"{deed.kind} {deed.target}" for deed in row.finding.deeds]),
               "Actions that the screen offers, the most useful first.", "diagnosis", visible=False, raw=_actions),
)  # fmt: skip

TABLE: Final = PageTable(
    id="finding",
    title="finding",
    columns=_COLUMNS,
    rows=_rows,
    key_of=attrgetter("finding.rule"),
    about="The ranked findings of the diagnosis; the first one stands in the first line of the dashboard.",
)
