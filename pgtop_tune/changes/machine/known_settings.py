"""Whether a change that a journal has is one that we could have made: of a setting we change, in its own file."""

from __future__ import annotations

import re
from typing import Final

from pgtop_tune.changes.model.machine_change import HostChange
from pgtop_tune.errors import HostProblem
from pgtop_tune.host import drop_in
from pgtop_tune.host.block_queue import QUEUE_SETTINGS
from pgtop_tune.host.system_settings import ALONG, SYSCTLS, TRANSPARENT, path_of

_POOL: Final = re.compile(r"hugepages-\d+kB/nr_hugepages")
_DEVICE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._!/-]*")


def check_known(change: HostChange) -> None:
    """Makes sure that undoing a change writes nothing but settings we change, and our own file of sysctl.d.

    Raises:
        HostProblem: It would; nothing was written.
    """
    along = {f"/{path_of(other)}" for other in ALONG.get(change.name, ())}
    known = (
        _is_known(change.name)
        and change.path == f"/{path_of(change.name)}"
        and {path for path, _ in change.also_before} <= along
        and change.drop_in in ("", f"/{drop_in.PATH}")
    )
    if not known:
        raise HostProblem(
            f"the journal has a change of {change.path} that pgtop-tune cannot have made: nothing was written",
            "`pgtop-tune revert --list` shows the journal, and --retire takes it out of use",
        )


def _is_known(name: str) -> bool:
    if name in SYSCTLS or name in TRANSPARENT or _POOL.fullmatch(name):
        return True
    device, _, setting = name.rpartition("/")
    return setting in QUEUE_SETTINGS and _DEVICE.fullmatch(device) is not None
