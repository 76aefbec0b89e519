"""A change of a setting of the operating system: what is asked, and what came of it."""

from __future__ import annotations

from msgspec import Struct

from pgtop_tune.changes.model.change import ChangeState


class WantedSetting(Struct, frozen=True):
    """A setting of the operating system as somebody wants it.

    Attributes:
        name: As in SystemSetting.
        value: As typed.
    """

    name: str
    value: str


class HostChange(Struct, frozen=True):
    """A change of one setting of the operating system, as the journal keeps it.

    Attributes:
        id: Unique within the journal.
        at_ms: When it was intended, milliseconds since the epoch.
        name: Setting, as in SystemSetting.
        path: The kernel's file.
        value: New value.
        value_before: What the file had before.
        state: How far it got.
        boot_id: /proc/sys/kernel/random/boot_id at the change: what was only live is gone after a reboot.
        also_before: Path and value of settings that the kernel changes along with this one (vm.dirty_ratio becomes 0
            when vm.dirty_bytes is set).
        drop_in: File that makes the value survive a reboot; "" when the change is live only.
        drop_in_before: Its whole content before; None when there was no such file.
        shown_after: What the file had after the change; "" until then.
        message: Why it failed, or why the value read back differs.
        set_id: Changes with the same one belong together, also with those of parameters; "" for a single change.
        by: Who made it: "user@host, pid".
        reason: Why, in the operator's words. Foreign text.
        kept: Whether it stays until somebody reverts it; else it is on trial.
        until_ms: When the trial is over, milliseconds since the epoch; None without one.
    """

    id: str
    at_ms: int
    name: str
    path: str
    value: str
    value_before: str
    state: ChangeState
    boot_id: str = ""
    also_before: tuple[tuple[str, str], ...] = ()
    drop_in: str = ""
    drop_in_before: str | None = None
    shown_after: str = ""
    message: str = ""
    set_id: str = ""
    by: str = ""
    reason: str = ""
    kept: bool = True
    until_ms: int | None = None
