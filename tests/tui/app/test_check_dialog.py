"""The check on the screen: what it found, why, and fixes as a pending set or as a script."""

from __future__ import annotations

import asyncio
import re
import stat
import threading
from collections.abc import Awaitable, Callable, Sequence
from datetime import date
from pathlib import Path

import pytest

from pgtop_tune.advice.knobs.catalogue import KNOBS
from pgtop_tune.base.errors import ConnectionProblem
from pgtop_tune.health.check import Severity
from pgtop_tune.health.report import Accepted, CheckResult
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.tui.dashboard.screen import Dashboard
from pgtop_tune.tui.dialogs.dialog import DetailsDialog
from pgtop_tune.tui.parameters.check_dialog import CheckDialog
from tests.support.frames import parameter
from tests.support.reports import ScriptedCheck, check_row, report, sets, typical
from tests.support.screens import Rig, ScriptedParameters, running_screen
from tests.tui.app.test_restart_dialog import ScriptedRestart


async def _opened(rig: Rig) -> None:
    await rig.press("C")
    await rig.sees("found: ")


async def test_while_it_looks_it_says_so_and_escape_leaves() -> None:
    control = ScriptedCheck(typical(), waits=True)
    async with running_screen(checks=control) as rig:
        await rig.press("C")
        await rig.sees("querying the server and its machine")
        await rig.press("escape")
        await rig.until(lambda: isinstance(rig.app.screen, Dashboard))
        control.waits = False


async def test_findings_come_worst_first_and_unknowns_are_counted() -> None:
    async with running_screen(checks=ScriptedCheck(typical())) as rig:
        await _opened(rig)
        text = rig.text()
        order = [text.index(f" {id_} ") for id_ in ("WAL-01", "MEM-02", "MEM-04", "IDX-01", "KEY-01", "OS-01")]
        assert order == sorted(order)
        assert "found: 1 critical, 1 high, 1 warning, 2 info · unknown: 1 · passed: 1" in text
        assert "\x1b" not in text


async def test_what_the_project_has_signed_for_stands_below_what_is_found() -> None:
    signed = sets("work_mem", "8MB", Severity.HIGH, "sorts spill")
    shown = report(
        CheckResult(check_row("AAA-01"), (sets("jit", "off", Severity.INFO, "jit is on"),)),
        CheckResult(check_row("XXX-01"), accepted=(Accepted(signed, "until the next machine", date(2027, 1, 31)),)),
    )
    async with running_screen(checks=ScriptedCheck(shown)) as rig:
        await _opened(rig)
        await rig.sees("accepted XXX-01   high, sorts spill · until the next machine, until 2027-01-31")
        text = rig.text()
        assert text.index("AAA-01") < text.index("XXX-01")
        assert "found: 1 info · accepted: 1 ·" in text


async def test_enter_says_why_with_evidence_fix_undo_and_documentation() -> None:
    async with running_screen(checks=ScriptedCheck(typical())) as rig:
        await _opened(rig)
        await rig.press("down", "enter")
        await rig.until(lambda: isinstance(rig.app.screen, DetailsDialog))
        for words in (
            "Why MEM-02 matters.", "shared_buffers is small  [pg_settings.setting]",
            "ALTER SYSTEM SET shared_buffers = '4GB';", "ALTER SYSTEM RESET shared_buffers;",
            "takes effect with a restart", "https://www.postgresql.org/docs/18/page.html",
        ):  # fmt: skip
            await rig.sees(words)


async def test_tagged_findings_become_one_set_on_trial() -> None:
    control = ScriptedParameters()
    async with running_screen(checks=ScriptedCheck(typical()), parameters=control, knobs=KNOBS) as rig:
        await _opened(rig)
        await rig.press("space")
        await rig.sees("1 tagged")
        await rig.press("down", "space")
        await rig.sees("apply: ALTER SYSTEM SET max_wal_size = '4GB'; ALTER SYSTEM SET work_mem = '8MB'; "
                       "SELECT pg_reload_conf();")  # fmt: skip
        assert control.journal == []
        await rig.press("a")
        await rig.sees("apply it")
        await rig.press("y")
        await rig.sees("work_mem is now 8MB")
        assert {change.name for change in control.journal} == {"max_wal_size", "work_mem"}
        assert len({change.set_id for change in control.journal}) == 1
        assert control.terms.keep_within_s == 60.0
        assert control.terms.reason == "check WAL-01, MEM-04"
        await rig.sees("auto-revert in")
        await rig.until(lambda: "tagged" not in rig.text())
        await rig.press("u")
        await rig.sees("undo 2 changes")
        await rig.press("y")
        await rig.sees("work_mem is 4MB again")
        assert control.journal == []


async def test_what_takes_a_restart_waits_for_it() -> None:
    control = ScriptedParameters()
    async with running_screen(checks=ScriptedCheck(typical()), parameters=control, knobs=KNOBS) as rig:
        await _opened(rig)
        await rig.press("down", "space")
        await rig.sees("waits for a restart (A): shared_buffers")
        await rig.press("a")
        await rig.sees("A checks one")
        assert control.journal == []


async def test_a_value_that_can_lose_data_is_locked_here_as_elsewhere() -> None:
    lossy = report(CheckResult(check_row("XXX-01"), (sets("fsync", "off", Severity.HIGH, "commits are slow"),)))
    control = ScriptedParameters()
    control.rows["fsync"] = parameter("fsync", "on", "on", vartype="bool")
    async with running_screen(checks=ScriptedCheck(lossy), parameters=control, knobs=KNOBS) as rig:
        await _opened(rig)
        await rig.press("space")
        await rig.sees("apply: ALTER SYSTEM SET fsync")
        await rig.press("a")
        await rig.sees("apply it")
        await rig.press("y")
        await rig.sees("--allow-unsafe")
        assert control.journal == []


async def test_tagged_findings_are_written_as_a_script_with_their_undoing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    async with running_screen(checks=ScriptedCheck(typical()), size=(200, 40)) as rig:
        await _opened(rig)
        await rig.press("space", "down", "down", "space", "w")
        await rig.sees("written: ")
        (file,) = (tmp_path / "pgtop-tune" / "checks").iterdir()
        assert file.name in rig.text()
        script = file.read_text()
        assert "pgtop-tune set max_wal_size=4GB --reason 'pgtop-tune check' \"$@\"" in script
        assert "#   undo: ALTER SYSTEM RESET max_wal_size;" in script
        assert re.search(r"^#   DROP INDEX", script, re.MULTILINE)
        assert "work_mem" not in script
        assert "\x1b" not in script
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        await rig.press("w")
        await rig.until(lambda: len(list(file.parent.iterdir())) == 2)


async def test_what_nothing_mends_is_not_tagged() -> None:
    async with running_screen(checks=ScriptedCheck(typical())) as rig:
        await _opened(rig)
        await rig.press("end", "space")
        await rig.sees("OS-01: no automatic fix")
        assert "tagged" not in rig.text()


async def test_a_check_that_cannot_look_says_why_and_can_be_asked_again() -> None:
    control = ScriptedCheck(ConnectionProblem("the server is not there", "start it"))
    async with running_screen(checks=control) as rig:
        await rig.press("C")
        await rig.sees("the server is not there")
        control.says = typical()
        await rig.press("r")
        await rig.sees("unknown: 1")
        assert "the server is not there" not in rig.text()
        assert control.looks == 2


async def test_one_restart_takes_what_is_tagged() -> None:
    restart = ScriptedRestart()
    control = ScriptedParameters()
    async with running_screen(checks=ScriptedCheck(typical()), parameters=control, restart=restart, knobs=KNOBS) as rig:
        await _opened(rig)
        await rig.press("down", "space")
        await rig.sees("waits for a restart (A): shared_buffers")
        await rig.press("A")
        await rig.sees("fine: needs 300 MB")
        assert restart.asked == []
        await rig.press("y")
        await rig.sees("the server is up with it")
        assert [(each.name, each.value) for each in restart.asked[0][0]] == [("shared_buffers", "4GB")]
        await rig.press("escape")
        await rig.until(lambda: isinstance(rig.app.screen, CheckDialog))
        assert control.journal == []


async def test_the_terms_of_a_trial_are_chosen_here_too() -> None:
    control = ScriptedParameters()
    async with running_screen(checks=ScriptedCheck(typical()), parameters=control, knobs=KNOBS) as rig:
        await _opened(rig)
        await rig.press("space", "o")
        await rig.sees("terms of a change")
        await rig.press("tab", "ctrl+u", "5", "enter")
        await rig.until(lambda: isinstance(rig.app.screen, CheckDialog))
        await rig.sees("reverts after 5 s")
        await rig.press("down", "space")
        await rig.sees("SET work_mem = '8MB'")
        await rig.press("a")
        await rig.sees("apply it")
        await rig.press("y")
        await rig.sees("work_mem is now 8MB")
        assert control.terms.keep_within_s == 5.0
        assert control.terms.reason == "check WAL-01, MEM-04"


async def test_what_the_server_can_do_at_most_is_measured_from_here() -> None:
    control = ScriptedCheck(typical())
    async with running_screen(checks=control, size=(160, 40)) as rig:
        await _opened(rig)
        await rig.press("M")
        await rig.sees("the WAL device flushes 1940 times a second; timer: no pg_test_timing")
        assert control.measured == [False]


async def test_a_busy_server_is_measured_only_after_a_question() -> None:
    control = ScriptedCheck(typical(), disturbs=("3 active sessions",))
    async with running_screen(checks=control, size=(160, 40)) as rig:
        await _opened(rig)
        await rig.press("M")
        await rig.sees("The server is busy: 3 active sessions.")
        await rig.press("escape")
        await rig.sees("not measured")
        assert control.measured == [False]
        await rig.press("M")
        await rig.sees("measure anyway")
        await rig.press("m")
        await rig.sees("flushes 1940 times a second")
        assert control.measured == [False, False, True]


async def test_keys_are_taken_while_it_looks_again() -> None:
    checks, control = ScriptedCheck(typical()), ScriptedParameters()
    async with running_screen(checks=checks, parameters=control, knobs=KNOBS) as rig:
        await _opened(rig)
        await rig.press("space")
        await rig.sees("SET max_wal_size = '4GB'")
        checks.waits = True
        await rig.press("r")
        await rig.sees("querying the server and its machine")
        await rig.press("a")
        await rig.sees("apply it")
        await rig.press("y")
        await rig.sees("max_wal_size is now 4GB")
        await rig.press("Y")
        await rig.sees("confirmed: ")
        checks.waits = False


@pytest.mark.parametrize(
    ("keys", "asks"), [(("space", "a"), "apply it"), (("down", "space", "A"), "fine: needs 300 MB")]
)
async def test_a_key_right_after_a_tag_waits_for_the_statements(
    keys: tuple[str, ...], asks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    control, may_go = ScriptedParameters(), threading.Event()
    checks = ScriptedCheck(typical())
    async with running_screen(checks=checks, parameters=control, restart=ScriptedRestart(), knobs=KNOBS) as rig:
        await _opened(rig)
        monkeypatch.setattr(control, "list", _held(control.list, may_go))
        await rig.press(*keys)
        await rig.sees("1 tagged")
        may_go.set()
        await rig.sees(asks)


async def test_what_was_measured_is_not_covered_by_a_look_that_began_before() -> None:
    checks = ScriptedCheck(typical())
    async with running_screen(checks=checks, size=(160, 40)) as rig:
        await _opened(rig)
        checks.waits = True
        await rig.press("r", "M")
        await rig.sees("flushes 1940 times a second")
        assert "querying the server" not in rig.text()
        checks.waits = False


def _held(
    asked: Callable[[tuple[str, ...]], Awaitable[tuple[Parameter, ...]]], may_go: threading.Event
) -> Callable[[Sequence[str]], Awaitable[tuple[Parameter, ...]]]:
    """The same answer, once it may be given; controls are asked in another thread."""

    async def answer(names: Sequence[str]) -> tuple[Parameter, ...]:
        while not may_go.is_set():
            await asyncio.sleep(0.01)
        return await asked(tuple(names))

    return answer
