"""From what an operator asks to the runs that are to be made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from pgtop_tune.bench.profiles import Profile
from pgtop_tune.bench.scripts import BUILTIN_STATEMENTS, check_script, read_script, statements_in
from pgtop_tune.experiment.endpoints import LoadTarget
from pgtop_tune.experiment.load_run import RunCell
from pgtop_tune.experiment.steps import Steps
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.model.run_result import ScriptFile


def cells(
    targets: Sequence[LoadTarget],
    profiles: Sequence[Profile],
    spec: LoadSpec,
    steps: Steps | None,
    *,
    clients: int | None = None,
    protocol: str | None = None,
    allow_shell: bool = False,
) -> tuple[RunCell, ...]:
    """Each endpoint with each profile at each step, in this order.

    Args:
        spec: What all runs have in common.
        clients, protocol: None takes what suits the profile.

    Raises:
        LoadProblem: A script that is not there, or that starts programs and may not.
    """
    found = []
    for target in targets:
        for profile in profiles:
            base = replace(
                spec,
                profile=profile.name,
                clients=clients or profile.clients(),
                protocol=protocol or profile.protocol,
            )
            scripts = scripts_of(base, profile, allow_shell=allow_shell)
            for each in steps.specs(base) if steps else (base,):
                found.append(RunCell(target=target, profile=profile, spec=each, scripts=scripts))
    return tuple(found)


def scripts_of(spec: LoadSpec, profile: Profile, *, allow_shell: bool) -> tuple[ScriptFile, ...]:
    """What will run, with the hashes of its files.

    Raises:
        LoadProblem: A script that is not there, or that starts programs and may not.
    """
    if profile.builtin and not spec.scripts:
        return (ScriptFile(profile.builtin, 1, statements=BUILTIN_STATEMENTS[profile.builtin]),)
    chosen = [(Path(each.file), each.weight) for each in spec.scripts]
    allowed = allow_shell or (profile.allow_shell and not chosen)
    if not chosen:
        chosen = [(script.file, script.weight) for script in profile.scripts]
    read = [(read_script(file), weight) for file, weight in chosen]
    for script, _ in read:
        check_script(script, allow_shell=allowed)
    return tuple(
        ScriptFile(name=script.file.name, weight=weight, sha256=script.sha256, statements=statements_in(script.text))
        for script, weight in read
    )
