"""A change of a setting of the operating system and its undoing, each step journaled before it is made. Blocking.

Whether a change that a journal has is one that we could have made: of a setting we change, in its own file.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import time
import uuid
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import HostProblem, JournalProblem, UsageProblem
from pgtop_tune.base.units import MB, about
from pgtop_tune.changes.journal import Journal
from pgtop_tune.changes.machine.announcements import Announcements, check_free, orphans_of, touched
from pgtop_tune.changes.model.change import ChangeState, HostChange, joined_notes
from pgtop_tune.changes.model.pending_set import NO_DEADLINE
from pgtop_tune.host import sysctl_files
from pgtop_tune.host.block_devices import QUEUE_SETTINGS
from pgtop_tune.host.kernel_sections import HugePagePools, parse_meminfo, pool_paths
from pgtop_tune.host.kernel_text import read_once
from pgtop_tune.host.sysctl_files import PATH
from pgtop_tune.host.system_settings import (
    ALONG,
    SYSCTLS,
    TRANSPARENT,
    BootSettings,
    default_page_bytes,
    is_sysctl,
    live_value,
    path_of,
    setting,
)
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.host import HugePages
from pgtop_tune.model.machine import SystemSetting

# The commands that make a change by hand, ready to be pasted into a shell.
#
# Sources: sysctl(8), tmpfiles.d(5), udev(7).

_TMPFILES: Final = "/etc/tmpfiles.d/pgtop-tune.conf"
_RULES: Final = "/etc/udev/rules.d/99-pgtop-tune.rules"


def commands(name: str, value: str, *, survive: bool) -> tuple[str, ...]:
    """Return one command for the live value, and with `survive` one more for the time after a reboot."""
    live = (
        f"sudo sysctl -w {shlex.quote(f'{name}={value}')}" if is_sysctl(name) else _tee(value, f"/{path_of(name)}", "")
    )
    return (live, _lasting(name, value)) if survive else (live,)


def _lasting(name: str, value: str) -> str:
    if is_sysctl(name):
        return _tee(f"{name} = {value}", f"/{PATH}", "-a ")
    device, _, setting = name.rpartition("/")
    if path_of(name).startswith("sys/block/"):
        kernel = device.replace("/", "!")
        rule = f'ACTION=="add|change", KERNEL=="{kernel}", ATTR{{queue/{setting}}}="{value}"'
        return _tee(rule, _RULES, "-a ")
    return _tee(f"w /{path_of(name)} - - - - {value}", _TMPFILES, "-a ")


def _tee(text: str, path: str, options: str) -> str:
    return f"echo {shlex.quote(text)} | sudo tee {options}{shlex.quote(path)}"


# The number of huge pages that the kernel granted of those requested. Source:
# Documentation/admin-guide/mm/hugetlbpage.rst.
#
# Asking for more than there is room for is no error: the kernel gives what it finds in one piece. Asking for fewer
# than
# are in use lets go of the free ones; those in use go when the last process has let go of them, "surplus" until then.

_POOL: Final = re.compile(r"hugepages-(\d+)kB/nr_hugepages")


def pool_of(name: str, root: Path) -> HugePages | None:
    """Return the pool a setting is about, as it is now; None for other settings and where it cannot be read."""
    match = _POOL.fullmatch(name)
    page_bytes = int(match[1]) * 1024 if match else default_page_bytes(root) if name == "vm.nr_hugepages" else None
    if not page_bytes:
        return None
    try:
        return HugePages(page_bytes, *(int(read_once(root / path)) for path in pool_paths(page_bytes)))
    except (OSError, ValueError):
        return None


def pages_in_words(requested: str, shown_value: str, pool: HugePages) -> str:
    """Return why a pool does not have the number of pages asked for; "" when it has."""
    pages = int(requested)
    if pool.surplus:
        return f"{pool.surplus} more pages are in use; the kernel frees them when their last process ends"
    if not shown_value.isdecimal() or int(shown_value) == pages:
        return ""
    if int(shown_value) > pages:
        return f"{shown_value} of the pages are in use: the pool cannot shrink now"
    return (
        f"the kernel found room for {shown_value} of {pages} pages: memory is fragmented. Compact it (echo 1 into "
        "/proc/sys/vm/compact_memory) and try again, or reserve them at boot"
    )


# Whether strict accounting of memory would leave room to fork. Source: mm/overcommit-accounting.rst; mm/util.c.
#
# With vm.overcommit_memory=2 nothing new starts once Committed_AS has reached CommitLimit: no shell, no ssh, no
# backend.

_ACCOUNTING: Final = "vm.overcommit_memory"
_RATIO: Final = "vm.overcommit_ratio"
_KILOBYTES: Final = "vm.overcommit_kbytes"
_STRICT: Final = 2
_LEAST_ROOM: Final = 256 * MB
"""For a shell and a login while nothing else ends; the kernel keeps admin_reserve_kbytes for root besides."""


def check_room_to_fork(root: Path, name: str, value: str) -> None:
    """Make sure that a setting leaves CommitLimit above what is committed, where strict accounting is in force.

    Raises:
        HostProblem: It does not; nothing was changed.
    """
    pool = pool_of(name, root)
    if name not in (_ACCOUNTING, _RATIO, _KILOBYTES) and pool is None:
        return
    try:
        memory = parse_meminfo(0.0, read_once(root / "proc/meminfo"))
        live = {name: int(live_value(path_of(name), root)) for name in (_ACCOUNTING, _RATIO, _KILOBYTES)}
        pools = HugePagePools(root).read(memory.huge_pages)
    except (OSError, ValueError):
        return
    values_after, committed = (
        {**live, name: int(value)} | ({_KILOBYTES: 0} if name == _RATIO else {}),
        memory.committed_bytes,
    )
    if committed is None or values_after[_ACCOUNTING] != _STRICT:
        return
    usable = memory.total_bytes - sum(pool.total * pool.page_bytes for pool in pools)
    more = 0 if pool is None else (int(value) - pool.total) * pool.page_bytes
    limit, now = (
        (1024 * values[_KILOBYTES] or size * values[_RATIO] / 100) + (memory.swap_total_bytes or 0)
        for values, size in ((values_after, usable - more), (live, usable))
    )
    helps = live[_ACCOUNTING] == _STRICT and limit >= now
    if helps or committed + _LEAST_ROOM <= limit:
        return
    raise HostProblem(
        f"{name}={value}: CommitLimit would be {about(limit)}, but {about(committed)} are already committed: no "
        "program could start",
        "free memory first, or restart the server with less memory",
    )


_DEVICE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._!/-]*")


def check_known(change: HostChange) -> None:
    """Make sure that undoing a change writes nothing but settings we change, and our own file of sysctl.d.

    Raises:
        HostProblem: It would; nothing was written.
    """
    along = {f"/{path_of(name)}" for name in ALONG.get(change.name, ())}
    is_known = (
        _is_known(change.name)
        and change.path == f"/{path_of(change.name)}"
        and {path for path, _ in change.also_before} <= along
        and change.drop_in in ("", f"/{sysctl_files.PATH}")
    )
    if not is_known:
        raise HostProblem(
            f"the journal has a change of {change.path} that pgtop-tune cannot have made, so nothing was written",
            "`pgtop-tune revert --list` shows the journal, and --retire takes it out of use",
        )


def _is_known(name: str) -> bool:
    if name in SYSCTLS or name in TRANSPARENT or _POOL.fullmatch(name):
        return True
    device, _, setting = name.rpartition("/")
    return setting in QUEUE_SETTINGS and _DEVICE.fullmatch(device) is not None


_BOOT_ID: Final = "proc/sys/kernel/random/boot_id"
_CLOSED: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
_AS_ROOT: Final = "run it as root; a container's /proc/sys is mostly read-only: run it on the machine itself"
_LEFT_ALONE: Final = "left alone"
_HALVES: Final = ("dirty_bytes", "dirty_background_bytes", "overcommit_kbytes")


class Intent(Struct, frozen=True):
    """Circumstances of a change besides its value; the first three as in HostChange."""

    set_id: str = ""
    by: str = ""
    reason: str = ""
    deadline: Mapping[str, Any] = NO_DEADLINE


def kernel_value(system_setting: SystemSetting, value: str) -> str:
    """Return the value as the kernel's file takes it.

    Raises:
        UsageProblem: It is not a whole number, or not one of the words the kernel offers.
    """
    text = value.strip()
    if system_setting.choices:
        if text not in system_setting.choices:
            raise UsageProblem(
                f"{system_setting.name} does not accept {text!r}", f"one of {', '.join(system_setting.choices)}"
            )
        return text
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()):
        raise UsageProblem(f"{system_setting.name} does not accept {text!r}", "a whole number, without a unit")
    return text


def check_request(root: Path, name: str, value: str, *, survive: bool) -> tuple[SystemSetting, str, str]:
    """Return a setting, the value as the kernel's file takes it, and what it has now; nothing is changed.

    Raises:
        UsageProblem: The value is none, or the setting cannot be kept in a file.
        HostProblem: This kernel does not have it.
    """
    system_setting = setting(name, root, BootSettings(root))
    if isinstance(system_setting.live, Unavailable):
        raise HostProblem(f"{name}: {system_setting.live}")
    requested_value = kernel_value(system_setting, value)
    if survive and not is_sysctl(name):
        raise UsageProblem(
            f"{name} is not a sysctl: files of sysctl.d do not set it",
            commands(name, requested_value, survive=True)[-1],
        )
    return system_setting, requested_value, system_setting.live


def check_writable(system_setting: SystemSetting, requested_value: str, *, survive: bool) -> None:
    """Make sure that this process may change a setting.

    Raises:
        HostProblem: It may not; the hint has the command.
    """
    if not system_setting.writable:
        raise HostProblem(
            f"{system_setting.path} cannot be written by this process",
            f"run {commands(system_setting.name, requested_value, survive=survive)[0]}",
        )


def make(
    journal: Journal,
    root: Path,
    name: str,
    value: str,
    *,
    survive: bool,
    intent: Intent,
    announced: Announcements | None = None,
) -> HostChange:
    """Write the live value, reads it back, and with `survive` puts it into our file of sysctl.d as well.

    Returns:
        The change; `message` says plainly where the kernel gave something else, or a later file wins at boot.

    Raises:
        UsageProblem: The value is none, or the setting cannot be kept in a file.
        HostProblem: We may not, no program could start any more, or the kernel refuses; nothing changed.
        JournalProblem: The journal could not be written; nothing was changed.
    """
    system_setting, requested_value, before = check_request(root, name, value, survive=survive)
    check_writable(system_setting, requested_value, survive=survive)
    check_room_to_fork(root, name, requested_value)
    file = root / sysctl_files.PATH
    change = HostChange(
        id=uuid.uuid4().hex[:12],
        at_ms=time.time_ns() // 1_000_000,
        name=name,
        path=system_setting.path,
        value=requested_value,
        value_before=before,
        state=ChangeState.INTENDED,
        boot_id=_boot_id(root),
        also_before=tuple((path, live_value(path, root)) for path in _along(name, root)),
        drop_in=f"/{sysctl_files.PATH}" if survive else "",
        drop_in_before=sysctl_files.content(file) if survive else None,
        set_id=intent.set_id,
        by=intent.by,
        reason=intent.reason,
        kept=intent.deadline["until_ms"] is None,
        **intent.deadline,
    )
    journal.write(change)
    if announced is not None and change.until_ms is not None:
        try:
            announced.add(intent.by, change)
        except HostProblem as problem:
            journal.write(replace(change, state=ChangeState.FAILED, message=problem.message))
            raise
    try:
        shown_value = _tried(change, root)
        if survive:
            sysctl_files.replace(file, sysctl_files.with_sysctl(change.drop_in_before, name, requested_value))
    except HostProblem as problem:
        _live_back(change, root)
        journal.owe()
        if announced is not None:
            announced.remove(change.set_id, change.id)
        journal.write(replace(change, state=ChangeState.FAILED, message=problem.message))
        raise
    message = joined_notes(_objection(change, shown_value, root), _overridden(change, root))
    applied = replace(change, state=ChangeState.APPLIED, shown_after=shown_value, message=message)
    try:
        journal.write(applied)
    except JournalProblem:
        _live_back(change, root)
        if survive:
            sysctl_files.replace(file, change.drop_in_before)
        journal.owe()
        journal.write(replace(applied, state=ChangeState.REVERTED, shown_after=before))
        raise
    return applied


def clear_way(root: Path, announced: Announcements, paths: Collection[str]) -> None:
    """Make sure that no other account holds files of the kernel; what programs that are gone have left is reverted.

    Raises:
        HostProblem: One holds them, or left a change that we cannot have made; nothing was changed.
    """
    foreign = announced.of_others(paths)
    live = {path: _live(path, root) for announcement in foreign for path in announcement.holds}
    for leftover in check_free(foreign, live):
        for change in orphans_of(leftover, live):
            check_known(change)
            check_room_to_fork(root, change.name, change.value_before)
            _live_back(change, root)
        announced.remove(leftover.set_id)


def _live(path: str, root: Path) -> str:
    try:
        return live_value(path, root)
    except OSError:
        return ""


def take_back(
    journal: Journal, root: Path, change: HostChange, reason: str = "", announced: Announcements | None = None
) -> HostChange:
    """Restore the live value, the values that the kernel had changed along with it, and the file.

    After a crash the kernel shows whether the change was made; a value that another user has set since is left
    alone; later changes of the same setting or file that are still in force stay, and remember what was before this
    one.

    Args:
        journal: Open.
        root: Where /proc, /sys and /etc are found.
        change: In force, as the journal has it now.
        reason: Reason of the revert, for the journal.
        announced: Of this machine, whose lock is held.

    Raises:
        HostProblem: We may not, the kernel refuses, another account has the setting pending, or it is no change of
            ours; the change is still in force.
    """
    check_known(change)
    if announced is not None and not announced.has(change.set_id):
        clear_way(root, announced, touched(change))
    journal.owe()
    later = _rebased(journal, change)
    covered = {path for later_change in later for path in _before(later_change)}
    if change.path in covered:
        note = "a later change of this setting stays"
    elif change.boot_id != _boot_id(root) and not change.drop_in:
        note = "the machine has been rebooted since, which removed the value"
    else:
        note = _live_taken_back(change, root, covered)
    file = (
        _file_taken_back(
            journal, root, change, [later_change for later_change in later if later_change.drop_in == change.drop_in]
        )
        if change.drop_in
        else ""
    )
    left_alone = note.startswith(_LEFT_ALONE) and not change.drop_in
    reverted = replace(
        change,
        state=ChangeState.SUPERSEDED if left_alone else ChangeState.REVERTED,
        shown_after=_now(change, root),
        message=joined_notes(reason, note, file),
    )
    if announced is not None:
        announced.remove(change.set_id, change.id)
    journal.write(reverted)
    if not journal.unwritten:
        return reverted
    shows = f"{journal.unwritten}: it shows the change as in force until the next start"
    return replace(reverted, message=joined_notes(reverted.message, shows))


def _before(change: HostChange) -> dict[str, str]:
    """Return the values that the kernel's files had before a change, by path."""
    return {change.path: change.value_before, **dict(change.also_before)}


def _rebased(journal: Journal, change: HostChange) -> list[HostChange]:
    """Return the changes in force that were made after this one; the next to touch a file of the kernel that this one
    touched now remembers the value from before this one."""
    text = journal.text()
    after = text.host_changes[[recorded.id for recorded in text.host_changes].index(change.id) + 1 :]
    later: list[HostChange] = []
    before = _before(change)
    for later_change in after:
        if later_change not in text.host_in_force:
            continue
        rebased = replace(
            later_change,
            value_before=before.get(later_change.path, later_change.value_before),
            also_before=tuple((path, before.get(path, value)) for path, value in later_change.also_before),
        )
        if rebased != later_change:
            journal.write(rebased)
        before = {path: value for path, value in before.items() if path not in _before(later_change)}
        later.append(rebased)
    return later


def _tried(change: HostChange, root: Path) -> str:
    """Write the new value and read it back."""
    _write(root, change.path, change.value)
    shown_value = live_value(change.path, root)
    if shown_value == change.value_before != change.value:
        objection = (
            _objection(change, shown_value, root) or "the kernel accepted the value but did not change the setting"
        )
        raise HostProblem(f"{change.name} is still {shown_value}: {objection}")
    return shown_value


def _live_taken_back(change: HostChange, root: Path, covered: set[str]) -> str:
    now = _now(change, root)
    if not now:
        return f"{change.path} no longer exists"
    if now not in (change.value_before, change.value, change.shown_after) and not _half_made(change, now):
        return f"{_LEFT_ALONE}: another user has set it to {now} since"
    if now != change.value_before:
        check_room_to_fork(root, change.name, change.value_before)
    _live_back(change, root, covered)
    after = live_value(change.path, root)
    pool = pool_of(change.name, root)
    if pool is not None:
        return pages_in_words(change.value_before, after, pool)
    return "" if after == change.value_before else f"the kernel turned {change.value_before} into {after}"


def _live_back(change: HostChange, root: Path, covered: Collection[str] = ()) -> None:
    """Write the old value, then those that the kernel changed along with it, but for files that later changes cover."""
    for path, value in _before(change).items():
        # The kernel refuses 0 bytes; it sets them by itself when the other half of the pair is written.
        is_other_half = value == "0" and path.endswith(_HALVES)
        if path not in covered and not is_other_half and live_value(path, root) != value:
            _write(root, path, value)


def _half_made(change: HostChange, now: str) -> bool:
    """Return whether a pool stopped on its way: the number of pages lies between what was and what was asked."""
    if change.state is not ChangeState.INTENDED or not change.name.endswith("nr_hugepages") or not now.isdecimal():
        return False
    low, high = sorted((int(change.value_before), int(change.value)))
    return low <= int(now) <= high


def _file_taken_back(journal: Journal, root: Path, change: HostChange, later: list[HostChange]) -> str:
    """Restore the file as it would be without this change: byte for byte where no other user has edited it."""
    file = root / change.drop_in.lstrip("/")
    sysctl_files.without_remains(file)
    now = sysctl_files.content(file)
    expected: str | None = sysctl_files.with_sysctl(change.drop_in_before, change.name, change.value)
    restored_text = change.drop_in_before
    for later_change in later:
        journal.write(replace(later_change, drop_in_before=restored_text))
        expected = sysctl_files.with_sysctl(expected, later_change.name, later_change.value)
        restored_text = sysctl_files.with_sysctl(restored_text, later_change.name, later_change.value)
    if now == expected:
        sysctl_files.replace(file, restored_text)
    elif now not in (None, restored_text):
        if any(later_change.name == change.name for later_change in later):
            return f"{change.drop_in} has been edited since and stays as it is"
        sysctl_files.replace(file, sysctl_files.without_value(now or "", change.name, change.drop_in_before))
        return f"{change.drop_in} has been edited since: only our line was removed"
    return ""


def _objection(change: HostChange, shown_value: str, root: Path) -> str:
    """Return why the value read back is not the one asked for; "" when it is."""
    pool = pool_of(change.name, root)
    if pool is not None:
        return pages_in_words(change.value, shown_value, pool)
    return "" if shown_value == change.value else f"the kernel turned {change.value} into {shown_value}"


def _overridden(change: HostChange, root: Path) -> str:
    """Return the file that wins over ours at boot, in words; "" where none does."""
    places = BootSettings(root).of(change.name).assignments if change.drop_in else ()
    if not places or places[-1].file == change.drop_in:
        return ""
    last = places[-1]
    return f"after a reboot, line {last.line} of {last.file} wins: {last.value}"


def _along(name: str, root: Path) -> list[str]:
    paths = [f"/{path_of(changed_along)}" for changed_along in ALONG.get(name, ())]
    return [path for path in paths if (root / path[1:]).exists()]


def _now(change: HostChange, root: Path) -> str:
    """Return the value of the kernel's file; "" where the file is gone, as with a disk that was taken out."""
    try:
        return live_value(change.path, root)
    except OSError:
        return ""


def _boot_id(root: Path) -> str:
    try:
        return live_value(_BOOT_ID, root)
    except OSError:
        return ""


def _write(root: Path, path: str, value: str) -> None:
    try:
        descriptor = os.open(root / path.lstrip("/"), os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.write(descriptor, f"{value}\n".encode())
        finally:
            os.close(descriptor)
    except OSError as problem:
        if problem.errno in _CLOSED:
            raise HostProblem(f"{path} cannot be written: {problem.strerror}", _AS_ROOT) from None
        raise HostProblem(f"{path} does not accept {value!r}: {problem.strerror}") from None
