"""Lines that are there when there is something to say: over every page, and above its keys."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pgtop_tune.advice.knobs.catalogue import KNOBS
from pgtop_tune.changes.model.change import Terms, WantedParameter
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import ParameterSample, PostgresSample
from pgtop_tune.runtime.ports import Step
from pgtop_tune.tui.actions import PAGES
from tests.support.frames import PARAMETERS, frame, parameter
from tests.support.screens import ScriptedParameters, ScriptedSource, ScriptedTransport, running_screen


def seen(second: int, fsync: str) -> Frame:
    made = frame(second)
    assert isinstance(made.postgres, PostgresSample)
    rows = (*PARAMETERS, replace(parameter("fsync", fsync, fsync, vartype="bool"), boot_val="on"))
    return replace(made, postgres=replace(made.postgres, parameters=ParameterSample(float(second), rows)))


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
@pytest.mark.parametrize("replayed", [False, True])
async def test_the_banner_stands_over_every_page_as_long_as_the_frames_show_the_risk(
    size: tuple[int, int], replayed: bool
) -> None:
    source = ScriptedSource([Step((seen(0, "on"), seen(1, "off")), restart=True)])
    async with running_screen(source, size=size, transport=ScriptedTransport() if replayed else None) as rig:
        for key in (*(page.key for page in PAGES[:2]), "1"):
            await rig.press(key)
            await rig.until(lambda: rig.text().startswith(" ⚠ fsync=off can lose "))
            lines = rig.text().split("\n")
            assert len(lines) == size[1]
            assert lines[-1].strip().endswith("quit")
            assert "PostgreSQL" in lines[1] or "18.6" in lines[1]
        source.feed(seen(2, "on"))
        await rig.until(lambda: not rig.text().startswith(" ⚠"))
        assert rig.text().split("\n")[-1].strip().endswith("quit")


async def test_what_is_on_trial_stands_above_the_keys_of_every_page() -> None:
    async with running_screen(size=(80, 24), parameters=ScriptedParameters(), knobs=KNOBS) as rig:
        assert rig.app.parameters.changes is not None
        await rig.app.parameters.changes.apply((WantedParameter("work_mem", "8MB"),), Terms(keep_within_s=60.0))
        for page in PAGES[:2]:
            await rig.press(page.key)
            await rig.until(lambda: "auto-revert in" in rig.text().split("\n")[-2])
        await rig.press("Y")
        await rig.until(lambda: "auto-revert in" not in rig.text())
