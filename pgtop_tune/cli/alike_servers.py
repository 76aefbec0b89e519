"""What the workers of several servers answer, and whether these servers are alike enough for one experiment."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

import msgspec
from msgspec import convert

from pgtop_tune import __version__
from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.experiment.plan.bind import differences
from pgtop_tune.experiment.workers.run import Workers
from pgtop_tune.runtime.running_experiments import ServerKey

_NAMED: Final = 4


class Described(Protocol):
    """What a worker says of its server."""

    @property
    def version(self) -> str:
        """Of the program there."""
        ...

    @property
    def server(self) -> ServerKey | None:
        """None where the role may not see what it is."""
        ...


D = TypeVar("D", bound=Described)


async def answers_of_all(workers: Workers, request: bytes, kind: type[D]) -> dict[str, D]:
    """What all workers answer to one unit, by the name of the server.

    Raises:
        UsageProblem: There are no workers, or an answer cannot be read.
        PgtopError: As `Workers.run`.
    """
    servers = await workers.servers()
    if not servers:
        raise UsageProblem("the scheduler has no workers", "`dask worker ADDRESS --nthreads 1 --name SERVER` on each")
    answers = await asyncio.gather(*(workers.run(each, request) for each in servers))
    try:
        return {name: convert(json.loads(data)["answer"], kind) for name, data in zip(servers, answers, strict=True)}
    except (ValueError, KeyError, msgspec.ValidationError) as problem:
        raise UsageProblem(f"a worker's answer cannot be read: {problem}", "run the same version everywhere") from None


def check_alike(found: Mapping[str, D], decides: Callable[[D], dict[str, Any]]) -> None:
    """Makes sure that an experiment is the same one on each of the servers.

    Args:
        decides: What has to be alike.

    Raises:
        UsageProblem: Another version, two workers of one server, or servers that differ, and in what.
    """
    for name, each in found.items():
        if each.version != __version__:
            raise UsageProblem(
                f"{name} has pgtop-tune {each.version}, and this is {__version__}", "install one version"
            )
    _check_servers_differ({name: each.server for name, each in found.items()})
    (first_name, first), *others = found.items()
    for name, each in others:
        different = list(differences(decides(first), decides(each)))
        if different:
            more = f", and {len(different) - _NAMED} more" if len(different) > _NAMED else ""
            words = "; ".join(different[:_NAMED])
            raise UsageProblem(f"{first_name} and {name} are not alike: {words}{more}", "make the servers alike")


def _check_servers_differ(found: Mapping[str, ServerKey | None]) -> None:
    names = list(found)
    for place, name in enumerate(names):
        for earlier in names[:place]:
            one, other = found[name], found[earlier]
            if one is not None and other is not None and one.is_same(other):
                raise UsageProblem(
                    f"{earlier} and {name} are workers of one server", "start one worker for each server"
                )
