"""Deeds of a finding: a row each, with its key and its effect, done through the question that its key has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.advice.knobs.catalogue import KNOBS
from pgtop_tune.diagnosis.finding import Deed, DeedKind, Diagnosis
from pgtop_tune.model.backend_action import BackendAct, PreparedAct
from pgtop_tune.model.replication import HorizonSample, PreparedTransaction
from pgtop_tune.runtime.ports import Step
from pgtop_tune.tui.findings import FindingsDialog
from pgtop_tune.tui.parameters.dialog import ParameterDialog
from pgtop_tune.tui.session_actions import PlanDialog
from tests.support.experiments import ScriptedExperiments
from tests.support.frames import parameter
from tests.support.pictures import assert_picture
from tests.support.screens import (
    Rig,
    ScriptedBackends,
    ScriptedParameters,
    ScriptedSource,
    ScriptedTransport,
    running_screen,
)
from tests.tui.findings.test_findings import STALLED, diagnosis

GOLDENS = Path(__file__).parents[1] / "goldens"
FIRST = STALLED.interval(40).newest.postgres.activity.backends[0]  # type: ignore[union-attr]
KEY = (FIRST.pid, FIRST.backend_start_ms)
END = Deed(kind=DeedKind.END_SESSION, target=str(KEY[0]), backend=KEY, effect="frees 4 sessions")
CANCEL = Deed(kind=DeedKind.CANCEL, target=str(KEY[0]), backend=KEY, effect="frees 4 sessions once it ends")
STAGE = Deed(kind=DeedKind.STAGE_PARAMETER, target="work_mem", direction="raise", effect="less is spilled")
RELEASE = Deed(
    kind=DeedKind.STAGE_PARAMETER, target="synchronous_standby_names", direction="set", value="", effect="commits go on"
)
ROLLBACK = Deed(kind=DeedKind.COPY_SQL, target="ROLLBACK PREPARED 'order-4711';", effect="frees 4", database="shop")
DROP = Deed(kind=DeedKind.COPY_SQL, target="SELECT pg_drop_replication_slot('dr');", effect="frees 4 GB of WAL")
PLAN = Deed(
    kind=DeedKind.EXPLAIN, target=FIRST.query or "", effect="shows whether an index is missing", database="bench"
)
LOCKS = Deed(kind=DeedKind.OPEN_PAGE, target="4", effect="shows the lock tree")
PREPARED = PreparedTransaction(gid="order-4711", xid=7, owner="app", database="shop", prepared_ms=1_700_000_000_123)


def with_deeds(*deeds: Deed) -> Diagnosis:
    found = diagnosis(STALLED)
    note = replace(found.first, rule="cpu.full", sentence="both CPUs are busy", short="both CPUs are busy",
                   forms=("both CPUs are busy",), deeds=(LOCKS,))  # fmt: skip
    return replace(found, findings=(replace(found.first, deeds=deeds), note))


@asynccontextmanager
async def showing(*deeds: Deed, size: tuple[int, int] = (120, 40), **controls: object) -> AsyncIterator[Rig]:
    """A screen whose first line has these deeds."""
    newest = STALLED.interval(40).newest
    horizon = HorizonSample(at_s=39.0, now_ms=0, next_xid=8, n_open=0, open=(), prepared=(PREPARED,))
    newest = replace(newest, postgres=replace(newest.postgres, horizon=horizon))  # type: ignore[type-var]
    source = ScriptedSource([Step((newest,), restart=True)])
    given: dict[str, object] = {"backends": ScriptedBackends(), "parameters": ScriptedParameters(), "knobs": KNOBS}
    async with running_screen(source, size=size, **(given | controls)) as rig:
        rig.app.findings.diagnose = lambda session: with_deeds(*deeds)  # type: ignore[method-assign]
        rig.app.context.repaint()
        yield rig


async def test_f_ends_the_session_of_the_first_line_after_its_question() -> None:
    control = ScriptedBackends()
    async with showing(END, backends=control) as rig:
        await rig.sees(f"f end {KEY[0]}")
        await rig.press("f")
        await rig.sees(f"pg_terminate_backend({KEY[0]})")
        assert not control.signalled
        await rig.press("y")
        await rig.until(lambda: control.signalled == [(BackendAct.TERMINATE, KEY)])


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50), (60, 15)])
async def test_the_dialog_has_a_row_with_key_and_effect_for_each_deed(size: tuple[int, int]) -> None:
    async with showing(END, CANCEL, STAGE, PLAN, LOCKS, size=size, experiments=ScriptedExperiments()) as rig:
        await rig.press("enter")
        await rig.sees("▸ K     end session")
        dialog = rig.app.screen
        assert isinstance(dialog, FindingsDialog)
        keys = [(row.key, row.act is not None) for row in dialog._deed_rows]
        assert keys == [("K", True), ("c", True), ("p", True), ("x", True), ("e", True), ("4", True), ("", True)]
        assert "frees 4 sessions" in rig.text()
        for _ in range(9):
            await rig.press("down")
        await rig.sees("▸ both CPUs are busy")
        await rig.press("enter")
        await rig.until(lambda: dialog.chosen is not None and dialog.chosen.rule == "cpu.full")


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
async def test_the_dialog_looks_as_it_did(width: int, height: int) -> None:
    async with showing(END, STAGE, ROLLBACK, PLAN, LOCKS, size=(width, height)) as rig:
        await rig.press("w")
        await rig.sees("▸ K     end session")
        assert_picture(GOLDENS / f"bottleneck-{width}x{height}.txt", rig.text().split("\n"))


@pytest.mark.parametrize(("key", "act"), [("K", BackendAct.TERMINATE), ("c", BackendAct.CANCEL)])
async def test_keys_of_the_dialog_act_on_the_session_of_the_finding(key: str, act: BackendAct) -> None:
    control = ScriptedBackends()
    async with showing(END, CANCEL, backends=control) as rig:
        await rig.press("w", key)
        await rig.sees(f"pg_{act}_backend({KEY[0]})")
        await rig.press("y")
        await rig.until(lambda: control.signalled == [(act, KEY)])


async def test_a_parameter_that_only_a_finding_names_is_staged_with_its_value() -> None:
    control = ScriptedParameters()
    name = "synchronous_standby_names"
    control.rows[name] = replace(parameter(name, "dr_site", "dr_site"), vartype="string")
    async with showing(RELEASE, parameters=control) as rig:
        await rig.press("f")
        await rig.until(lambda: isinstance(rig.app.screen, ParameterDialog))
        await rig.sees("ALTER SYSTEM SET synchronous_standby_names = ''")
        assert control.journal == [], "only staged"


async def test_a_parameter_that_the_server_does_not_have_is_refused_in_plain_words() -> None:
    """`f` opened the list at max_wal_size, with nothing staged."""
    async with showing(replace(STAGE, target="subtransaction_buffers"), experiments=ScriptedExperiments()) as rig:
        await rig.press("f")
        await rig.sees("this server has no parameter subtransaction_buffers: nothing is staged")
        assert rig.app.parameters.panel.staged == ()


async def test_x_stages_the_parameter_and_opens_the_experiment() -> None:
    async with showing(STAGE, experiments=ScriptedExperiments()) as rig:
        await rig.press("w", "x")
        await rig.sees("experiment: A against B")
        assert [row.name for row in rig.app.parameters.panel.staged] == ["work_mem"]


async def test_a_prepared_transaction_is_rolled_back_after_a_question_or_its_statement_copied() -> None:
    control = ScriptedBackends()
    async with showing(ROLLBACK, DROP, backends=control) as rig:
        await rig.sees("f roll back order-4711")
        await rig.press("w", "y")
        await rig.until(lambda: rig.app.clipboard == "ROLLBACK PREPARED 'order-4711';")
        await rig.press("down", "y")
        await rig.until(lambda: rig.app.clipboard == DROP.target)
        await rig.press("escape", "f")
        await rig.sees("roll back prepared transaction order-4711")
        assert not control.ended
        await rig.press("y")
        await rig.until(lambda: [(act, key.gid, key.database) for act, key in control.ended] == [
            (PreparedAct.ROLLBACK, "order-4711", "shop")
        ])  # fmt: skip


async def test_a_statement_that_no_door_runs_is_copied() -> None:
    async with showing(DROP) as rig:
        await rig.sees("f copy SQL")
        await rig.press("f")
        await rig.until(lambda: rig.app.clipboard == DROP.target)
        await rig.sees("copied: SELECT pg_drop_replication_slot('dr');")


async def test_the_plan_of_a_finding_is_that_of_a_session_which_runs_it() -> None:
    control = ScriptedBackends()
    async with showing(PLAN, backends=control) as rig:
        await rig.press("w", "e")
        await rig.until(lambda: isinstance(rig.app.screen, PlanDialog))
        assert [key for key, _ in control.explained] == [KEY]


async def test_a_recording_shows_deeds_and_does_none() -> None:
    async with showing(END, LOCKS, backends=None, parameters=None, transport=ScriptedTransport()) as rig:
        await rig.sees("f locks")
        await rig.press("w")
        await rig.sees("a recording shows what could be done")
        await rig.press("K")
        assert isinstance(rig.app.screen, FindingsDialog)


async def test_a_key_that_has_moved_says_so_once() -> None:
    async with showing(END) as rig:
        await rig.press("2", "f")
        await rig.sees("Ins tags rows")
        await rig.press("escape")
        rig.app.clear_notifications()
        await rig.until(lambda: "Ins tags rows" not in rig.text())
        await rig.press("f")
        await rig.sees(f"pg_terminate_backend({KEY[0]})")
        assert "Ins tags rows" not in rig.text()
