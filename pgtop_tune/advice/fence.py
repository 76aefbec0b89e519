"""The fence before a load: values of its sessions that are not safe. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pgtop_tune.base.errors import UnsafeChange
from pgtop_tune.metrics.setting_risks import risk_of


def check_load(settings: Sequence[tuple[str, str]], *, allow_unsafe: bool) -> None:
    """Make sure that sessions of a load begin with no value that the fence locks.

    Args:
        settings: LoadSpec.settings.
        allow_unsafe: Values may be unlocked; the caller has had their names typed.

    Raises:
        UnsafeChange: One is locked.
    """
    for name, value in settings:
        risk = risk_of(name, value)
        if risk is not None and risk.locked(ends=True) and not allow_unsafe:
            raise UnsafeChange(
                f"{name} = {value} {risk.words}", "pass --allow-unsafe to unlock it; nothing was started"
            )
