"""Why the permissions of a file or directory of this user keep this process out, and the command that mends it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.paths import account_name, config_dir, data_dir, state_dir


def refusal(path: Path) -> tuple[str, str] | None:
    """Return the reason as a clause, and the command; None where permissions are not the reason."""
    closed = closed_at(path)
    if closed is None:
        return None
    owner, quoted = os.lstat(closed).st_uid, shlex.quote(str(closed))
    if owner == os.geteuid():
        return f"this user may not use {closed}", f"chmod u+rwX {quoted}"
    return f"{closed} belongs to {account_name(owner)}", f"sudo chown -R {account_name(os.geteuid())}: {quoted}"


def closed_at(path: Path) -> Path | None:
    """Return the uppermost directory or file on a path whose permissions keep this process out; None without one."""
    for parent in reversed(path.parents):
        if not os.access(parent, os.X_OK, effective_ids=True):
            return parent if os.path.lexists(parent) else _closed_above(parent)
    if not os.path.lexists(path):
        return _closed_above(path)
    mode = os.R_OK | os.W_OK | (os.X_OK if os.path.isdir(path) else 0)
    return None if os.access(path, mode, effective_ids=True) else path


def of_own_directories(error: OSError) -> UsageProblem | None:
    """Return what is said of a failure below this program's directories, which `sudo` may have made root's.

    None where it is another failure.
    """
    if not isinstance(error, PermissionError) or not isinstance(error.filename, str):
        return None
    path = Path(error.filename)
    is_ours = any(path.is_relative_to(base) for base in (config_dir(), data_dir(), state_dir()))
    reason = refusal(path) if is_ours else None
    return None if reason is None else UsageProblem(f"{path} cannot be used: {reason[0]}", reason[1])


def _closed_above(path: Path) -> Path | None:
    """The directory that a missing file or directory would have to be made in, where this process may not."""
    above = next(parent for parent in path.parents if os.path.exists(parent))
    return None if os.access(above, os.W_OK, effective_ids=True) else above
