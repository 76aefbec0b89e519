"""The line under the header, the list behind it, and the next step of a finding."""

from __future__ import annotations

from msgspec.structs import replace

from pgtop_tune.advice.knobs.catalogue import KNOBS
from pgtop_tune.diagnosis.diagnoser import Diagnoser
from pgtop_tune.diagnosis.finding import Diagnosis, FindingKind
from pgtop_tune.diagnosis.rule import forms
from pgtop_tune.runtime.ports import Step
from pgtop_tune.tui.scene.banners import finding_line
from pgtop_tune.tui.widgets.lines import ASCII, UNICODE, plain_text, width
from tests.diagnosis.test_first_rules import SLOW_WAL, jammed
from tests.support.frames import parameter
from tests.support.screens import Rig, ScriptedBackends, ScriptedParameters, running_screen
from tests.support.scripted_source import ScriptedSource
from tests.support.situations import Situation

STALLED = Situation(waits={"Lock:transactionid": 16.0}, tps=0.0, backends=jammed, load=False)


def diagnosis(situation: Situation) -> Diagnosis:
    return Diagnoser().look(situation.interval(40))


def test_the_sentence_stands_with_the_page_that_proves_it_and_the_next_step() -> None:
    found = diagnosis(SLOW_WAL)
    deed = ("f", "stage commit_delay")
    whole, short = (plain_text(finding_line(found, cells, UNICODE, "Enter", deed)) for cells in (160, 80))
    assert whole.startswith(f" ▸ {found.first.sentence} ")
    assert short.startswith(" ▸ commits wait for the WAL device: 95 % of time ")
    assert whole.endswith("  Enter why  f stage commit_delay")
    assert short.endswith("  Enter why  f fix")


def test_clauses_go_before_the_words_that_say_of_what_a_share_is() -> None:
    """ "45 %" with half of the line empty left the operator to guess of what."""
    sentence = (
        "most likely commits wait for the WAL device: 45 % of each transaction; 143 flushes/s of 7 ms, 1.0 commits each"
    )
    short = "most likely commits wait for the WAL device: 45 % of time"
    found = diagnosis(SLOW_WAL)
    whole = "most likely commits wait for the WAL device: 45 % of each transaction"
    lengths = forms(sentence, (), short, "")
    found = replace(found, findings=(replace(found.first, sentence=sentence, short=short, forms=lengths),) * 3)
    deed = ("f", "stage commit_delay")
    shown = {cells: plain_text(finding_line(found, cells, UNICODE, "w", deed)) for cells in (160, 120, 104, 80)}
    assert [
        shown[cells].startswith(f" ▸ {text} ")
        for cells, text in ((160, sentence), (120, whole), (104, short), (80, short))
    ] == [True] * 4
    assert shown[104].endswith("  w why  f stage commit_delay  +2")
    assert shown[80].endswith("  w why  f fix  +2")


def test_at_every_width_it_is_one_line_in_the_terminal() -> None:
    for found in (None, diagnosis(SLOW_WAL), diagnosis(STALLED)):
        for cells in range(30, 260, 7):
            for glyphs in (UNICODE, ASCII):
                assert width(finding_line(found, cells, glyphs, "w", ("f", "end 900"))) <= cells


def test_only_an_outage_is_red() -> None:
    found = diagnosis(SLOW_WAL)
    for kind in FindingKind:
        shown = replace(found, findings=(replace(found.first, kind=kind),))
        styles = {style for _, style in finding_line(shown, 120, UNICODE)}
        assert ("critical" in styles) is (kind is FindingKind.OUTAGE)


async def _sees(rig: Rig, situation: Situation, words: str) -> None:
    rig.source.feed(*situation.interval(40).frames)
    await rig.sees(words)


async def test_from_the_line_to_a_staged_value_are_two_keys() -> None:
    control = ScriptedParameters()
    control.rows["commit_delay"] = replace(parameter("commit_delay", "0", "0"), min_val="0", max_val="100000")
    source = ScriptedSource([Step((SLOW_WAL.interval(1).newest,), restart=True)])
    async with running_screen(source, parameters=control, knobs=KNOBS, size=(140, 40)) as rig:
        await _sees(rig, SLOW_WAL, "f stage commit_delay")
        await rig.press("w")
        await rig.sees("143/s")
        await rig.press("p")
        await rig.sees("apply: ALTER SYSTEM SET commit_delay = ")
        assert control.journal == [], "only staged"


async def test_the_session_that_others_wait_for_is_one_key_further() -> None:
    source = ScriptedSource([Step((STALLED.interval(1).newest,), restart=True)])
    async with running_screen(source, size=(140, 40), backends=ScriptedBackends()) as rig:
        await _sees(rig, STALLED, "f end 900")
        await rig.press("enter")
        await rig.sees("▸ K     end session 900")
        while "▸       open session 900" not in rig.text():
            await rig.press("down")
        await rig.press("enter")
        await rig.sees("idle in transaction")
        await rig.sees("as in pg_stat_activity")


async def test_the_page_that_proves_it_opens_from_the_list() -> None:
    source = ScriptedSource([Step((SLOW_WAL.interval(1).newest,), restart=True)])
    async with running_screen(source, size=(140, 40)) as rig:
        await _sees(rig, SLOW_WAL, "commits wait for the WAL device")
        await rig.press("w", "6")
        await rig.until(lambda: rig.app._in_view is rig.app._pages and rig.app._pages.page.key == "6")
        await rig.sees("commits wait for the WAL device")
