"""A setting of the operating system: what it is now, what it is after a reboot, and a change of it."""

from __future__ import annotations

from msgspec import Struct

from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.change import ChangeState


class Assignment(Struct, frozen=True):
    """A place that sets a value at boot.

    Attributes:
        value: As it stands there. Foreign text.
        file: Path of the file; "/proc/cmdline" for the kernel's command line.
        line: Number of the line, from 1.
    """

    value: str
    file: str
    line: int


class AfterReboot(Struct, frozen=True):
    """What the files that are read at boot make of a setting.

    Attributes:
        assignments: Every place that sets it, in the order in which they are read: the last one wins. Empty where
            none does and the kernel's own default comes back.
        not_read: What else may set it at boot and is not looked into: "tuned (profile …)", "udev rules"; for people.
    """

    assignments: tuple[Assignment, ...] = ()
    not_read: tuple[str, ...] = ()

    @property
    def value(self) -> str | None:
        """What wins; None where the kernel's own default comes back."""
        return self.assignments[-1].value if self.assignments else None


class SystemSetting(Struct, frozen=True):
    """One setting of this machine.

    Attributes:
        name: As sysctl has it ("vm.swappiness"); for others the end of the path ("transparent_hugepage/enabled",
            "hugepages-1048576kB/nr_hugepages", "vda/scheduler").
        path: The kernel's file.
        live: The value now; why not, where the file cannot be read.
        choices: The words the kernel takes, where it lists them.
        after_reboot: What the machine starts with.
        writable: Whether this process may change it.
    """

    name: str
    path: str
    live: str | Unavailable
    choices: tuple[str, ...] = ()
    after_reboot: AfterReboot = AfterReboot()
    writable: bool = False


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
