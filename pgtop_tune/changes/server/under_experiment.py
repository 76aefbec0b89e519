"""The rule that nobody but the experiment changes a parameter under experiment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.runtime.running_experiments import running_on, server_of_instance

if TYPE_CHECKING:
    from pgtop_tune.model.instance import Instance


def check_free(names: Iterable[str], instance: Instance) -> None:
    """Makes sure that no experiment on this server switches one of some parameters. Blocking.

    Raises:
        UsageProblem: One does; nothing was changed.
    """
    wanted = {name.lower() for name in names}
    for each in running_on(server_of_instance(instance)):
        held = [name for name in each.parameters if name.lower() in wanted]
        if held:
            verb = "is" if len(held) == 1 else "are"
            raise UsageProblem(f"{', '.join(held)} {verb} under experiment ({each.words})", each.hint)
