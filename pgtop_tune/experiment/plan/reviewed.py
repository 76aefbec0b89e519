"""The hash of everything that decides what will run, and what differs from what was reviewed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.paths import private, read_own, replacing
from pgtop_tune.experiment.plan.model import BoundPlan
from pgtop_tune.model.run_json import plain

_LENGTH: Final = 16
_MOST: Final = 5


def decides(plan: BoundPlan) -> dict[str, Any]:
    """What the hash is about: all of the plan."""
    found: dict[str, Any] = plain(plan)
    return found


def plan_hash(plan: BoundPlan) -> str:
    """Sixteen hexadecimal digits."""
    text = json.dumps(decides(plan), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_LENGTH]


def keep_reviewed(plan: BoundPlan, directory: Path) -> str:
    """Keeps what was shown, so that a later run can name what has changed.

    Returns:
        The hash.

    Raises:
        UsageProblem: It cannot be written.
    """
    found = plan_hash(plan)
    try:
        with replacing(private(directory) / f"{found}.json") as file:
            file.write(json.dumps(decides(plan), indent=1).encode())
    except OSError as problem:
        raise UsageProblem(f"{directory}: {problem.strerror}", "XDG_STATE_HOME names another directory") from None
    return found


def check_reviewed(plan: BoundPlan, wanted: str, directory: Path) -> None:
    """Makes sure that what would run is what was reviewed.

    Raises:
        UsageProblem: It is not; names what changed.
    """
    now = plan_hash(plan)
    if now == wanted:
        return
    try:
        before = json.loads(read_own(directory / f"{Path(wanted).name}.json"))
    except (OSError, ValueError):
        raise UsageProblem(
            f"the plan has the hash {now}, not {wanted}, and no review of {wanted} is kept here",
            "review it again: `pgtop-tune experiment plan`",
        ) from None
    different = list(differences(before, json.loads(json.dumps(decides(plan)))))
    more = f", and {len(different) - _MOST} more" if len(different) > _MOST else ""
    raise UsageProblem(
        f"this is not the plan that was reviewed: {'; '.join(different[:_MOST])}{more}",
        "review it again: `pgtop-tune experiment plan`",
    )


def differences(before: Any, now: Any, path: str = "") -> Iterator[str]:
    """What differs between two documents, one sentence each: "arms.2.parameters: 1GB -> 2GB"."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name in dict.fromkeys((*before, *now)):
            yield from differences(before.get(name), now.get(name), f"{path}.{name}" if path else name)
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for place, (one, other) in enumerate(zip(before, now, strict=True)):
            yield from differences(one, other, f"{path}.{place + 1}")
    elif isinstance(before, list) and isinstance(now, list):
        yield f"{path}: {len(before)} -> {len(now)} entries"
    elif before != now:
        yield f"{path}: {before} -> {now}"
