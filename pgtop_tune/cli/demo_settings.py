"""The settings that a demo's server starts with: given by the operator, or advised for this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cli.connecting import ConnectionWords

if TYPE_CHECKING:
    from pgtop_tune.cluster.binaries import Binaries
    from pgtop_tune.cluster.throwaway import Throwaway

_OF_THE_DEMO: Final = frozenset(
    {
        "config_file", "data_directory", "external_pid_file", "hba_file", "ident_file", "listen_addresses", "port",
        "unix_socket_directories",
    }
)  # fmt: skip
"""Where the server is: private and chosen by the demo."""


class Advised(Struct, frozen=True):
    """What is advised for a demo's server on this machine.

    Attributes:
        settings: Value by parameter, where it differs from what the server has.
        left_out: Lines on what is not set, with the reason.
    """

    settings: Mapping[str, str]
    left_out: tuple[str, ...]


def given(words: Sequence[str], binaries: Binaries) -> dict[str, str]:
    """The settings of --setting, of which the last of a name counts, asked of the programs before there is a server.

    Raises:
        UsageProblem: A word is not NAME=VALUE, the name is unknown, or the value is refused.
        ClusterProblem: The programs cannot be asked.
    """
    from pgtop_tune.changes.model.change import SYSTEM
    from pgtop_tune.cli.assignments import instead, wanted
    from pgtop_tune.cluster.setting_check import names, refusal

    settings: dict[str, str] = {}
    for each in wanted(words, SYSTEM):
        name, value = each.name.lower(), each.value or ""
        if name in _OF_THE_DEMO:
            raise UsageProblem(f"--setting {name}: the demo chooses it", "the demo's server is private: leave it out")
        refused = refusal(binaries, name, value)
        if refused is not None and refused.unknown:
            raise UsageProblem(f"PostgreSQL {binaries.version} has no parameter {name}", instead(name, names(binaries)))
        if refused is not None:
            raise UsageProblem(f"--setting {name}={value}: {refused.says}", "nothing was started")
        settings[name] = value
    return settings


def advised(server: ConnectionWords, kept: Mapping[str, str]) -> Advised:
    """What `advise` proposes for a running server, without the machine's half.

    Args:
        server: The demo's, just started.
        kept: Settings of the operator, which the proposal is to fit.
    """
    from pgtop_tune.advice.proposal import propose
    from pgtop_tune.cli.looking import look_closely
    from pgtop_tune.cli.parameter_rows import rows_of
    from pgtop_tune.metrics import sections

    looked = look_closely(server, 0.0, None, None)
    proposal = propose(replace(looked.facts, started_with=looked.facts.started_with | kept.keys()))
    half, sample = proposal.server_half(), looked.interval.now(sections.parameters)
    rows = rows_of(() if sample is None else sample.parameters, half)
    settings = {row.parameter.name: row.advised for row in rows if row.differs and row.parameter.name not in kept}
    left = [
        f"left out, {name}: {half[name].because}"
        for name, advice in proposal.parameters.items()
        if advice.value != half[name].value
    ]
    live = {} if looked.facts.machine is None else looked.facts.machine.live
    machine = [
        name
        for name, advice in proposal.settings.items()
        if advice.value is not None and advice.value != live.get(name)
    ]
    if machine:
        left.append(f"left out, settings of the machine: {', '.join(machine)} (`pgtop-tune advise --group os`)")
    return Advised(settings, tuple(left))


def overridden(server: Throwaway, settings: Mapping[str, str]) -> tuple[str, ...]:
    """Those of the settings that ALTER SYSTEM of an earlier session holds in a kept cluster."""
    from pgtop_tune.cluster import auto_conf

    stored = auto_conf.settings(auto_conf.read(str(server.data_dir)).decode(errors="replace"))
    return tuple(name for name in stored if name.lower() in settings)
