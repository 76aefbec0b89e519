"""What is asked of a twin, what its copies are made of, and where it stands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from pgtop_tune.bench.ports import LoadEndpoint, SqlSession
from pgtop_tune.bench.runner import PgbenchRunner
from pgtop_tune.cluster.account import Account
from pgtop_tune.cluster.binaries import Binaries
from pgtop_tune.cluster.copied_server import BackupSource
from pgtop_tune.cluster.stopped_directory import StoppedDirectory
from pgtop_tune.compare.sides.figures import TPS
from pgtop_tune.compare.statistics.switchback import Paired
from pgtop_tune.experiment.switchback.arms import Rival
from pgtop_tune.experiment.switchback.blocks import Arm
from pgtop_tune.experiment.switchback.evaluation import Evaluation
from pgtop_tune.experiment.switchback.state import Ending
from pgtop_tune.experiment.twin.design import TwinLengths, TwinPair
from pgtop_tune.model.bench import LoadSpec


class TwinPhase(StrEnum):
    """What is going on."""

    COPYING = "copying the server"
    CLONING = "cloning the copy"
    STARTING = "starting both copies"
    WARMING_UP = "warming up"
    MEASURING = "measuring"
    CROSSING = "exchanging the settings of the copies"
    REMOVING = "removing the copies"
    OVER = "over"


class TwinPlan(Struct, frozen=True):
    """What is asked for.

    Attributes:
        rivals: Resolved.
        load: In words.
        for_s: At most, from the first load on.
        seed: Of the coin and of both loads.
        lengths: Of the blocks.
        objective: The figure that decides.
        halves: Of the CPUs; () where they are shared.
    """

    rivals: tuple[Rival, ...]
    load: str
    for_s: float
    seed: int
    lengths: TwinLengths = TwinLengths()
    objective: str = TPS
    halves: tuple[tuple[int, ...], ...] = ()


class TwinState(Struct, frozen=True):
    """Where the experiment stands.

    Attributes:
        crossed: The second stage: the copies have exchanged their settings.
        pair: From 1; 0 before the first.
        copying_s: What making the copies took.
        elapsed_s: Since the first load was started.
        stage: What the pairs of the stage say, the copies' own difference included.
        evaluation: After the last pair; None before the first.
        placement: How the copies were kept apart; "" before they were.
    """

    phase: TwinPhase = TwinPhase.COPYING
    crossed: bool = False
    pair: int = 0
    copying_s: float = 0.0
    elapsed_s: float = 0.0
    remaining_s: float = 0.0
    pairs: tuple[TwinPair, ...] = ()
    stage: Paired | None = None
    evaluation: Evaluation | None = None
    ending: Ending = Ending.UNDER_WAY
    reason: str = ""
    notes: tuple[str, ...] = ()
    placement: str = ""


class TwinMaterial(Struct, frozen=True):
    """What the copies are made of.

    Attributes:
        source: The running server, or a directory in which none runs.
        programs: Of the server's own installation.
        backup_programs: With a pg_basebackup.
        account: The server's.
        directory: Where the copies go.
        settings: Of each arm, by name.
        user, dbname: Of the load.
        open_session: Opens a session on a copy.
        make_runner: Makes a load generator for an endpoint.
    """

    source: BackupSource | StoppedDirectory
    programs: Binaries
    backup_programs: Binaries
    account: Account
    directory: Path
    settings: Mapping[Arm, Mapping[str, str]]
    spec: LoadSpec
    user: str
    dbname: str
    open_session: Callable[[LoadEndpoint], Awaitable[SqlSession]]
    make_runner: Callable[[LoadEndpoint], PgbenchRunner]
