"""An experiment for the screen without a server: a control that remembers, and states made by hand."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from pgtop_tune.model.bench import BenchRun
from pgtop_tune.runtime.experiment_control import ArmValues, ExperimentPreview, ExperimentRequest, ExperimentState
from pgtop_tune.runtime.ports import Step

WORK_MEM = ArmValues("work_mem", "4MB", "64MB")
RESTARTS = ArmValues(
    "shared_buffers",
    "128MB",
    "1GB",
    "takes a restart of the server; `pgtop-tune ab --restart` judges it with restarts, on a server that may be "
    "restarted",
)
KNOWN_NOISE = ExperimentPreview(
    (WORK_MEM, RESTARTS),
    0.032,
    ((0.01, 3000.0), (0.03, 364.0), (0.05, 200.0)),
    "last 20 predictions: 17 inside",
)
RUNNING = ExperimentState(
    number=1, under_way=True, values=(WORK_MEM,), phase="measuring", arm="B", pair=5, elapsed_s=132.0,
    remaining_s=468.0, figure="tps", effect=0.041, low=-0.003, high=0.082, counted=4,
    details=(
        "B (work_mem=64MB) against A (work_mem=4MB): under way; TPS +4.1 % (-0.3 % … +8.2 %) so far\n\n"
        "figure      A        B        B against A  95 %             verdict\n"
        "TPS         1000/s   1041/s   +4.1 %       -0.3 % … +8.2 %  undecided"
    ),
)  # fmt: skip
BETTER = replace(
    RUNNING, under_way=False, phase="over", arm="", low=0.012, high=0.071, counted=9, ending="better", better=True
)


class ScriptedExperiments:
    """An `ExperimentControl` that runs nothing."""

    def __init__(self, standing: ExperimentState | None = None, means: ExperimentPreview = KNOWN_NOISE) -> None:
        self.standing = standing or ExperimentState()
        self.means = means
        self.asked: list[tuple[tuple[str, str], ...]] = []
        self.started: list[ExperimentRequest] = []
        self.stops = 0

    def accept(self, step: Step) -> None: ...

    def close(self) -> None: ...

    def state(self) -> ExperimentState:
        return self.standing

    async def look(self, wanted: Sequence[tuple[str, str]], run: BenchRun | None) -> ExperimentPreview:
        self.asked.append(tuple(wanted))
        names = {name for name, _ in wanted}
        return replace(self.means, values=tuple(each for each in self.means.values if each.name in names))

    async def start(self, wanted: ExperimentRequest) -> None:
        self.started.append(wanted)
        self.standing = replace(RUNNING, pair=0, arm="", phase="warming up", effect=None, details="")

    async def stop(self) -> None:
        self.stops += 1
        self.standing = replace(self.standing, under_way=False, arm="", ending="interrupted")
