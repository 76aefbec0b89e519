"""A run that is to be made, and what precedes it."""

from __future__ import annotations

from typing import Final, Protocol

from msgspec import Struct

from pgtop_tune.bench.profiles import Profile
from pgtop_tune.experiment.endpoints import LoadTarget
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.model.run_result import ScriptFile

QUIET_DEADLINE_S: Final = 60.0


class RunCell(Struct, frozen=True):
    """One run to be made.

    Attributes:
        profile: What runs, where the spec has no scripts of its own.
        spec: With everything the profile leaves open filled in.
        scripts: For the record.
        configuration: Name of the parameters' values that are in force; "" for the server as it is.
    """

    target: LoadTarget
    profile: Profile
    spec: LoadSpec
    scripts: tuple[ScriptFile, ...] = ()
    configuration: str = ""

    @property
    def profile_name(self) -> str:
        """ "" for scripts that the operator gave."""
        return "" if self.spec.scripts else self.profile.name

    @property
    def dataset(self) -> str:
        """The data set the scripts run on; "" when nobody knows."""
        return "" if self.spec.scripts else self.profile.dataset or ("pgbench" if self.profile.builtin else "")


class BeforeEachRun(Struct, frozen=True):
    """What precedes each run.

    Attributes:
        housekeeping: Steps, see `bench.housekeeping`.
        warm_up_s: The same load for so long, thrown away; 0 for none.
        quiet_deadline_s: How long quiet is waited for.
    """

    housekeeping: tuple[str, ...] = ()
    warm_up_s: int = 0
    quiet_deadline_s: float = QUIET_DEADLINE_S


NOTHING_BEFORE: Final = BeforeEachRun()


class RunConfigurations(Protocol):
    """Puts the configuration of each run into force."""

    async def to(self, cell: RunCell) -> None:
        """Before the run; raises a PgtopError where that cannot be done."""

    async def lost(self, cell: RunCell) -> str:
        """After it: why the run was not made under its configuration, or not throughout; "" where it was."""
