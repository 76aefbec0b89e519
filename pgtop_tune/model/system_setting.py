"""A setting of the operating system: what it is now, and what it is after a reboot."""

from __future__ import annotations

from msgspec import Struct

from pgtop_tune.model.absence import Unavailable


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
