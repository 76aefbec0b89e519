"""A plan bound to a server: values are resolved, and arms that are impossible here are named with the arithmetic. Pure.

A plan that is wrong is refused. An arm that this machine cannot have stays in it: its cells are results with a reason.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import random
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.advice.facts import OUT_OF_REACH
from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.paths import private, read_own, replacing
from pgtop_tune.base.units import about, duration
from pgtop_tune.changes.start.checks import WAYS
from pgtop_tune.experiment.plan.model import (
    ADVISED,
    BoundPlan,
    Cell,
    ExperimentPlan,
    NotToTell,
    PlanArm,
    PlanChoices,
    PlanConfiguration,
    PlanFacts,
    Stage,
    clients_of,
    scale_of,
    value_of,
)
from pgtop_tune.experiment.plan.plan_file import place_of
from pgtop_tune.metrics.setting_risks import risk_of
from pgtop_tune.metrics.value_risks import RiskClass
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.machine import SystemSetting
from pgtop_tune.model.parameter_values import check_value, parse, unit_bytes
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.model.run_result import plain

# The hash of everything that decides what will run, and what differs from what was reviewed.

_LENGTH: Final = 16
_MOST: Final = 5


def plan_hash(plan: BoundPlan) -> str:
    """Return sixteen hexadecimal digits."""
    text = json.dumps(plain(plan), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_LENGTH]


def keep_reviewed(plan: BoundPlan, directory: Path) -> str:
    """Keep the plan that was shown, so that a later run can name the differences.

    Returns:
        The hash.

    Raises:
        UsageProblem: It cannot be written.
    """
    own_hash = plan_hash(plan)
    try:
        with replacing(private(directory) / f"{own_hash}.json") as file:
            file.write(json.dumps(plain(plan), indent=1).encode())
    except OSError as problem:
        raise UsageProblem(f"{directory}: {problem.strerror}", "set XDG_STATE_HOME to another directory") from None
    return own_hash


def check_reviewed(plan: BoundPlan, reviewed_hash: str, directory: Path) -> None:
    """Make sure that what would run is what was reviewed.

    Raises:
        UsageProblem: It is not; names what changed.
    """
    now = plan_hash(plan)
    if now == reviewed_hash:
        return
    try:
        before = json.loads(read_own(directory / f"{Path(reviewed_hash).name}.json"))
    except (OSError, ValueError):
        raise UsageProblem(
            f"the plan's hash is {now}, not {reviewed_hash}, and there is no review of {reviewed_hash} here",
            "review it again: `pgtop-tune experiment plan`",
        ) from None
    different = list(differences(before, json.loads(json.dumps(plain(plan)))))
    more = f", and {len(different) - _MOST} more" if len(different) > _MOST else ""
    raise UsageProblem(
        f"this is not the plan that was reviewed: {'; '.join(different[:_MOST])}{more}",
        "review it again: `pgtop-tune experiment plan`",
    )


def differences(before: Any, now: Any, path: str = "") -> Iterator[str]:
    """Yield the differences between two documents, one sentence each: "arms.2.parameters: 1GB -> 2GB"."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name in dict.fromkeys((*before, *now)):
            yield from differences(before.get(name), now.get(name), f"{path}.{name}" if path else name)
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for index, (one, entry_now) in enumerate(zip(before, now, strict=True)):
            yield from differences(one, entry_now, f"{path}.{index + 1}")
    elif isinstance(before, list) and isinstance(now, list):
        yield f"{path}: {len(before)} -> {len(now)} entries"
    elif before != now:
        yield f"{path}: {before} -> {now}"


# The cells of a plan in their order: expensive dimensions outermost, random within blocks by a recorded seed. Pure.
#
# Outermost is the scale, then the repeats, then the arms (restarts and settings of the machine) in random order, so
# that a machine that drifts favours none of them; innermost are endpoints, profiles and clients, again in random order.


def seed_of(plan: ExperimentPlan) -> int:
    """Return the plan's, or one made of its text: the same file has the same order."""
    return zlib.crc32(plan.text.encode()) & 0x7FFFFFFF if plan.seed is None else plan.seed


def stages_of(
    plan: ExperimentPlan,
    arms: Sequence[PlanArm],
    scales: Sequence[int],
    clients: Sequence[int],
    impossible: Mapping[tuple[str, str, int], str],
) -> tuple[Stage, ...]:
    """Return all stages, with their cells numbered as they run.

    Args:
        plan: The plan.
        arms: Resolved, in the plan's order.
        scales, clients: Resolved.
        impossible: (arm, endpoint, clients) to the reason why such cells cannot run.
    """
    chance = random.Random(seed_of(plan))
    stages: list[Stage] = []
    number = 1
    for scale in scales:
        has_data = False
        for repeat in range(1, plan.repeats + 1):
            order = list(arms)
            chance.shuffle(order)
            for arm in order:
                inner = [
                    (endpoint.name, profile, count, outage)
                    for endpoint in plan.endpoints
                    for profile in plan.profiles
                    for count in clients
                    for outage in [outage.name for outage in plan.outages] or [""]
                ]
                chance.shuffle(inner)
                cells = tuple(
                    Cell(
                        number=number + offset,
                        arm=arm.name,
                        scale=scale,
                        endpoint=endpoint,
                        profile=profile,
                        clients=count,
                        repeat=repeat,
                        outage=outage,
                        impossible=(
                            arm.impossible
                            or impossible.get((arm.name, endpoint, count), "")
                            or _no_pooler(plan, outage, endpoint)
                        ),
                    )
                    for offset, (endpoint, profile, count, outage) in enumerate(inner)
                )
                number += len(cells)
                anew = not arm.impossible and (plan.data_per_configuration or not has_data)
                has_data = has_data or anew
                stages.append(Stage(number=len(stages) + 1, arm=arm.name, scale=scale, make_data=anew, cells=cells))
    return tuple(stages)


def _no_pooler(plan: ExperimentPlan, outage_name: str, endpoint_name: str) -> str:
    """Return why the outage of a pooler cannot be caused at an endpoint; "" where it can."""
    outage = next((outage for outage in plan.outages if outage.name == outage_name), None)
    if outage is None or not outage.row.of_pooler or endpoint_name in plan.failing_poolers:
        return ""
    return f"{endpoint_name} is no pooler: it has no address in the plan"


_POOL: Final = "vm.nr_hugepages"
_MB: Final = 2**20
_PAGES: Final[Mapping[str, tuple[str, int]]] = {
    "2MB": (_POOL, 2 * _MB),
    "1GB": ("hugepages-1048576kB/nr_hugepages", 1024 * _MB),
}
"""Setting of the pool, and bytes of a page."""
_OVERHEAD: Final = 1.05
_BESIDE_BUFFERS: Final = 64 * _MB
"""Shared memory beside shared_buffers."""
OWN_SESSIONS: Final = 8
"""Connections of pgtop-tune during a run, at the most."""


class ServerView(Struct, frozen=True, kw_only=True):
    """The server and the machine that a plan is bound to.

    Attributes:
        server: Words that tell it from any other.
        facts: The facts for relative values.
        parameters: Parameters by name: those of the plan, max_connections and shared_buffers.
        names: The names of all parameters, to find the nearest one.
        settings: The settings of the machine by name, or the reason why they cannot be changed.
        reserved: Connections that are not for this role.
        unreachable: Endpoint to the reason.
        refused: Arm to the reason why the server would not start with it.
        scripts: (profile, what its scripts are).
        unsafe: Whether values that are not safe may be set, but for those that run code.
        confirmed: Names of parameters whose values may run code.
        allowed_outages: HOST:PORT of the operator's servers that may fail.
    """

    server: str
    facts: PlanFacts
    parameters: Mapping[str, Parameter]
    names: tuple[str, ...] = ()
    settings: Mapping[str, SystemSetting] | Unavailable = {}
    reserved: int = 0
    unreachable: Mapping[str, str] = {}
    refused: Mapping[str, str] = {}
    scripts: tuple[tuple[str, str], ...] = ()
    unsafe: bool = False
    confirmed: frozenset[str] = frozenset()
    allowed_outages: tuple[str, ...] = ()


def bound(plan: ExperimentPlan, view: ServerView) -> BoundPlan:
    """Return the plan as it runs there.

    Raises:
        UsageProblem: A name or a value that is none, or nothing of it can run here.
    """
    _check_outages(plan)
    arms = tuple(_arms(plan, view))
    facts = replace(view.facts, shared_buffers_bytes=int(max(_buffers(arm, view) for arm in arms)))
    clients = tuple(dict.fromkeys(clients_of(text, facts) for text in plan.clients))
    scales = tuple(dict.fromkeys(scale_of(text, facts) for text in plan.scales))
    impossible = {
        (arm.name, endpoint.name, count): reason
        for arm in arms
        for endpoint in plan.endpoints
        for count in clients
        if (reason := view.unreachable.get(endpoint.name, "") or ("" if endpoint.address else _room(arm, count, view)))
    }
    bound_plan = BoundPlan(
        **{name: getattr(plan, name) for name in PlanChoices.__struct_fields__},
        server=view.server,
        seed=seed_of(plan),
        arms=arms,
        baseline=next(arm.name for arm in arms if arm.configuration == plan.baseline),
        scripts=view.scripts,
        time_s=round(plan.time_s),
        warm_up_s=round(plan.warm_up_s),
        stages=stages_of(plan, arms, scales, clients, impossible),
        unsafe=view.unsafe,
        confirmed=tuple(sorted(view.confirmed)),
        allowed_outages=view.allowed_outages,
    )
    if all(cell.impossible for cell in bound_plan.cells):
        raise UsageProblem(f"no cell of the plan can run here: {bound_plan.cells[0].impossible}", "change the plan")
    return bound_plan


def _check_outages(plan: ExperimentPlan) -> None:
    """Raise UsageProblem for an outage that a run cannot have."""
    for index, outage in enumerate(plan.outages):
        line_of = partial(place_of, plan, "outage", str(index))
        if outage.after_s >= plan.time_s:
            raise UsageProblem(
                f"{line_of('after')}: {outage.name} after {duration(outage.after_s)} is not within a run of "
                f"{duration(plan.time_s)}",
                "make the runs longer",
            )
        if outage.row.with_standby and any(configuration.parameters for configuration in plan.configurations):
            raise UsageProblem(
                f"{line_of('action')}: a standby does not have the parameters that a configuration sets",
                "promote in a plan without configurations",
            )


def _arms(plan: ExperimentPlan, view: ServerView) -> Iterable[PlanArm]:
    for index, configuration in enumerate(plan.configurations):
        line_of = partial(place_of, plan, "configuration", str(index))
        _check_names(configuration, view, line_of)
        _check_values(configuration, view, line_of)
        for size in plan.page_sizes or ("",):
            several = len(plan.configurations) > 1
            pages = f"{size} pages" if size else ""
            name = ", ".join(filter(None, (configuration.name if several or not size else "", pages)))
            arm = PlanArm(name=name, configuration=configuration.name, page_size=size)
            try:
                arm = _resolved(arm, configuration, view)
                yield replace(arm, impossible=next(filter(None, _obstacles(arm, view)), ""))
            except NotToTell as why:
                yield replace(arm, impossible=f"{why.message}: {why.hint}")


def _check_names(configuration: PlanConfiguration, view: ServerView, line_of: Callable[..., str]) -> None:
    for name, _ in configuration.parameters:
        if name.lower() in WAYS:
            raise UsageProblem(
                f"{line_of('parameters', name)}: with another {name}, no load of the plan can reach the server",
                "remove it; reach the server in other ways through endpoints",
            )
        if name.lower() not in view.parameters:
            raise _unknown(
                f"{line_of('parameters', name)}: the server has no parameter {name}",
                difflib.get_close_matches(name.lower(), view.names, 3, 0.6),
                "`pgtop-tune parameters` lists those worth tuning",
            )
    if isinstance(view.settings, Unavailable):
        return
    for name, _ in configuration.settings:
        if name not in view.settings:
            raise _unknown(
                f"{line_of('settings', name)}: this machine has no setting {name}",
                difflib.get_close_matches(name, view.settings, 3, 0.6),
                "`pgtop-tune parameters --machine` lists them",
            )


def _unknown(message: str, near: Sequence[str], command: str) -> UsageProblem:
    return UsageProblem(message, f"did you mean {' or '.join(near)}?" if near else command)


def _check_values(configuration: PlanConfiguration, view: ServerView, line_of: Callable[..., str]) -> None:
    """Raise UsageProblem with the line of a value that the parameter does not take."""
    for name, text in configuration.parameters:
        try:
            check_value(view.parameters[name.lower()], value_of(name.lower(), text, view.facts))
        except NotToTell:
            continue
        except UsageProblem as problem:
            raise UsageProblem(f"{line_of('parameters', name)}: {problem.message}", problem.hint) from None


def _resolved(arm: PlanArm, configuration: PlanConfiguration, view: ServerView) -> PlanArm:
    """Return the arm with absolute values, without those in force, which would only cost a restart."""
    parameters = {name.lower(): value_of(name.lower(), text, view.facts) for name, text in configuration.parameters}
    pool = {name: text for name, text in configuration.settings if (name, text) == (_POOL, ADVISED)}
    settings = {name: value_of(name, text, view.facts) for name, text in configuration.settings if name not in pool}
    buffers = _number(parameters.get("shared_buffers"), "shared_buffers", view)
    if arm.page_size in _PAGES:
        name, page_bytes = _PAGES[arm.page_size]
        settings[name] = str(_pages(name, page_bytes, buffers, view))
        parameters["huge_pages"] = "on"
        if arm.page_size != "2MB":
            parameters["huge_page_size"] = arm.page_size
    elif arm.page_size:
        parameters["huge_pages"] = "off"
    for name in pool:
        settings[name] = str(_pages(name, 2 * _MB, buffers, view))
    contexts = [view.parameters[name].context for name in parameters if name in view.parameters]
    return replace(
        arm,
        parameters=tuple(parameters.items()),
        settings=tuple(settings.items()),
        restart="postmaster" in contexts,
    )


def _pages(name: str, page_bytes: int, buffers_bytes: float, view: ServerView) -> int:
    needed = math.ceil((buffers_bytes * _OVERHEAD + _BESIDE_BUFFERS) / page_bytes)
    ram_bytes = view.facts.ram_bytes
    if ram_bytes is not None and needed * page_bytes > ram_bytes:
        raise NotToTell(
            f"{needed} pages of {about(page_bytes)} do not fit in {about(ram_bytes)}", "reduce shared_buffers"
        )
    setting = None if isinstance(view.settings, Unavailable) else view.settings.get(name)
    live = 0 if setting is None or not str(setting.live).isdecimal() else int(str(setting.live))
    return max(needed, live)


def _obstacles(arm: PlanArm, view: ServerView) -> Iterable[str]:
    yield view.refused.get(arm.name, "")
    for name, value in arm.parameters:
        parameter = view.parameters.get(name)
        if parameter is None:
            yield f"the server has no parameter {name}"
            continue
        if parameter.context == "internal":
            yield f"{name} is fixed when a server is created or built"
        yield OUT_OF_REACH.get(parameter.source, "") and f"{name}: {OUT_OF_REACH[parameter.source]}"
        risk = risk_of(name, value, parameter)
        if risk is not None and risk.kind is RiskClass.RUNS_CODE:
            yield "" if name in view.confirmed else f"{name} {risk.words}: --confirm {name} unlocks it; value: {value}"
        elif risk is not None and not view.unsafe:
            yield f"{name} = {value} {risk.words}: --allow-unsafe unlocks it"
    buffers, ram_bytes = _buffers(arm, view), view.facts.ram_bytes
    if ram_bytes is not None and buffers >= ram_bytes:
        yield f"shared_buffers {about(buffers)} does not fit in {about(ram_bytes)} of memory"
    if isinstance(view.settings, Unavailable):
        if arm.settings:
            yield f"settings of the machine cannot be changed: {view.settings.detail}"
        return
    for name, value in arm.settings:
        setting = view.settings.get(name)
        if setting is None:
            yield f"this kernel has no setting {name}"
        elif not setting.writable and str(setting.live) != value:
            yield f"{name} is {setting.live}, not {value}, and {setting.path} cannot be written: run as root"


def _room(arm: PlanArm, clients: int, view: ServerView) -> str:
    """Return why the clients of a load find no connection; "" if they do."""
    most = int(_number(dict(arm.parameters).get("max_connections"), "max_connections", view))
    available = most - view.reserved
    if not most or clients + OWN_SESSIONS <= available:
        return ""
    reserved = f" less {view.reserved} reserved" if view.reserved else ""
    return (
        f"{clients} clients and {OWN_SESSIONS} sessions of pgtop-tune do not fit: max_connections is {most}{reserved}"
    )


def _buffers(arm: PlanArm, view: ServerView) -> float:
    return _number(dict(arm.parameters).get("shared_buffers"), "shared_buffers", view)


def _number(text: str | None, name: str, view: ServerView) -> float:
    """Return a value in bytes, or as a number; of the running server where the arm has none.

    Raises:
        UsageProblem: It is no number.
    """
    parameter = view.parameters[name]
    if text is None:
        text = parameter.setting
    return parse(text, parameter.unit, integer=True) * unit_bytes(parameter.unit)
