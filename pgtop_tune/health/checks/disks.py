"""Disks and file systems under the server's directories.

Source: PostgreSQL documentation, "File Systems" and "Reliability"; ext4(5), xfs(5), sysfs-block of the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pgtop_tune.base.units import about, share
from pgtop_tune.health import needs
from pgtop_tune.health.check import Check, CheckFinding, Evidence, Findings, Limits, Severity, Threshold, Unknown
from pgtop_tune.health.facts import CheckFacts, Missing
from pgtop_tune.health.fixes import by_hand, kernel_file, mount_again
from pgtop_tune.health.machine_figures import kernel_setting
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.host import FileSystem
from pgtop_tune.model.machine import ARCHIVE, Disk, MountPoint
from pgtop_tune.process.mount_namespace import NETWORK_KINDS

_GROUP: Final = "disks"
_FILE_SYSTEMS: Final = "creating-cluster.html#CREATING-CLUSTER-FILESYSTEM"
_RELIABILITY: Final = "wal-reliability.html"
_USUAL: Final = frozenset({"ext4", "xfs"})
_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
_LAYERED: Final = frozenset({"overlay", "aufs", "fuse.fuse-overlayfs"})
_KEEPS: Final = ("data", "wal", "tablespace")
"""Beginnings of the roles of directories whose data must not be lost."""
_NO_BARRIERS: Final = frozenset({"nobarrier", "barrier=0", "fsync_mode=nobarrier"})
_GIVES_UP: Final = frozenset({"soft", "softerr"})
"""Options of NFS: a request that is not answered fails after a while."""
_SHARED_QUEUE: Final = frozenset({"bfq", "cfq"})
_BOOT: Final = "a udev rule"
_NOT_PLACED: Final = Unavailable(Reason.NO_PERMISSION, "the disks of the server's directories are unknown")


def _roles(mount: FileSystem | MountPoint) -> str:
    return ", ".join(mount.roles)


def _keeps(mount: FileSystem | MountPoint) -> bool:
    return any(role.startswith(_KEEPS) for role in mount.roles)


def _space(facts: CheckFacts, limits: Limits) -> Findings:
    sample = facts.have(needs.FILE_SYSTEMS)
    for file_system in sample.file_systems:
        used = file_system.total_bytes - file_system.free_bytes
        usable = used + file_system.available_bytes
        if usable <= 0:
            continue
        percent = 100 * used / usable
        if percent < limits["warning"]:
            continue
        yield CheckFinding(
            severity=Severity.CRITICAL if percent >= limits["critical"] else Severity.WARNING,
            says=f"{file_system.mount} is {share(percent)} full, {about(file_system.available_bytes)} left",
            evidence=(
                Evidence(f"{about(used)} of {about(usable)} used", "statvfs(3) f_blocks, f_bfree, f_bavail"),
                Evidence(
                    f"holds {_roles(file_system)} ({file_system.kind} on {file_system.source})", "/proc/PID/mountinfo"
                ),
            ),
            fix=by_hand(
                "Free space or enlarge the volume; never delete files in pg_wal: slots, archiving and wal_keep_size "
                "need them."
            ),
            subject=file_system.mount,
        )
    for reason in sample.unanswered:
        yield Unknown(reason)


def _inodes(facts: CheckFacts, limits: Limits) -> Findings:
    for file_system in facts.have(needs.FILE_SYSTEMS).file_systems:
        if not file_system.inodes:
            continue
        percent = 100 * (file_system.inodes - file_system.inodes_free) / file_system.inodes
        if percent < limits["warning"]:
            continue
        yield CheckFinding(
            severity=Severity.CRITICAL if percent >= limits["critical"] else Severity.WARNING,
            says=f"{share(percent)} of the inodes of {file_system.mount} are used: once they run out, no file can be "
            "created despite free space",
            evidence=(
                Evidence(f"{file_system.inodes_free} of {file_system.inodes} are left", "statvfs(3) f_files, f_favail"),
                Evidence(f"holds {_roles(file_system)}", "/proc/PID/mountinfo"),
            ),
            fix=by_hand("Remove the source of many small files, or recreate the file system with more inodes."),
            subject=file_system.mount,
        )


def _kind(facts: CheckFacts, limits: Limits) -> Findings:
    yield from _unplaced(facts)
    for mount in (*_mounts(facts), *_archives(facts)):
        kind = mount.kind_below if mount.kind_below in (_MEMORY | _LAYERED | NETWORK_KINDS) else mount.kind
        if kind in _USUAL or (not _keeps(mount) and kind not in _MEMORY):
            continue
        severity, meaning, do = _judged(kind)
        file_system = mount.kind if kind == mount.kind else f"{mount.kind} on a device backed by {kind}"
        yield CheckFinding(
            severity=severity,
            says=f"{_roles(mount)} on {file_system}: {meaning}",
            evidence=(Evidence(f"{mount.point} is {mount.kind} on {mount.source}", "/proc/PID/mountinfo"),),
            fix=by_hand(do),
            subject=mount.point,
        )


def _judged(kind: str) -> tuple[Severity, str, str]:
    if kind in _MEMORY:
        return Severity.CRITICAL, "kept in memory, gone after a reboot", "Move the directory to a disk."
    if kind in _LAYERED:
        return (
            Severity.HIGH,
            "a container layer: slow, and gone with the container",
            "Move the directory to a separate volume.",
        )
    if kind in NETWORK_KINDS:
        return (
            Severity.HIGH,
            "a network file system, whose fsync and locks depend on another machine",
            "Use a local disk or a network block device; if it has to be NFS: hard mounts, and sync exports.",
        )
    return (
        Severity.INFO,
        "neither ext4 nor xfs, on which most measurements are based",
        "Measure it; on copy-on-write file systems (zfs, btrfs) turn wal_init_zero and wal_recycle off.",
    )


def _options(facts: CheckFacts, limits: Limits) -> Findings:
    yield from _unplaced(facts)
    for mount in _mounts(facts):
        options = frozenset(mount.options)
        evidence = (Evidence(f"{mount.point}: {','.join(mount.options)}", "/proc/PID/mountinfo"),)
        if unsafe := sorted(options & _NO_BARRIERS):
            yield CheckFinding(
                severity=Severity.CRITICAL,
                says=(
                    f"{mount.point} is mounted {unsafe[0]}: fsync does not reach the disk, and a power failure "
                    "corrupts data"
                ),
                evidence=evidence,
                fix=mount_again(mount.point, "barrier", unsafe[0]),
                subject=f"{mount.point} {unsafe[0]}",
            )  # fmt: skip
        if "ro" in options:
            yield CheckFinding(
                severity=Severity.CRITICAL,
                says=f"{mount.point} is read-only: the server can write neither WAL nor pages there",
                evidence=evidence,
                fix=by_hand("Read the kernel's log (an I/O error makes ext4 read-only), repair it, then remount."),
                subject=f"{mount.point} ro",
            )  # fmt: skip
        if mount.kind in NETWORK_KINDS and options & _GIVES_UP:
            yield CheckFinding(
                severity=Severity.HIGH,
                says=f"{mount.point} is mounted soft: a write delayed by the network fails, and can damage data",
                evidence=evidence,
                fix=by_hand("Stop the server, then mount it hard (also in /etc/fstab).", "Mount it soft again."),
                subject=f"{mount.point} soft",
            )  # fmt: skip
        if "sync" in options:
            yield CheckFinding(
                says=f"{mount.point} is mounted sync: every write waits for the disk, not only commits",
                evidence=evidence, fix=mount_again(mount.point, "async", "sync"), subject=f"{mount.point} sync",
            )  # fmt: skip
        if "strictatime" in options or not options & {"relatime", "noatime", "lazytime"}:
            yield CheckFinding(
                severity=Severity.INFO,
                says=f"{mount.point} writes an access time for every read",
                evidence=evidence,
                fix=mount_again(mount.point, "noatime", "strictatime"),
                subject=f"{mount.point} atime",
            )  # fmt: skip


def _scheduler(facts: CheckFacts, limits: Limits) -> Findings:
    for queue in _own_queues(facts):
        now = kernel_setting(facts, f"{queue.name}/scheduler")
        better = "none" if queue.nvme or queue.virtual else "mq-deadline"
        shared = now in _SHARED_QUEUE
        if not shared and not (better == "none" and now != "none"):
            continue
        path = f"/sys/block/{queue.name}/queue/scheduler"
        yield CheckFinding(
            severity=Severity.WARNING if shared else Severity.INFO,
            says=f"{now} orders requests to {queue.name}"
            + (": fair among programs, slow for one alone" if shared else ", although the device orders them itself"),
            evidence=(Evidence(f"scheduler {now}", path),),
            fix=kernel_file(path, better, now, _BOOT, f"{queue.name}/scheduler"),
            subject=queue.name,
        )


def _read_ahead(facts: CheckFacts, limits: Limits) -> Findings:
    for queue in _own_queues(facts):
        text = kernel_setting(facts, f"{queue.name}/read_ahead_kb")
        now = int(text) if text.isdecimal() else 0
        if limits["low"] <= now <= limits["warning"]:
            continue
        path = f"/sys/block/{queue.name}/queue/read_ahead_kb"
        better = "4096" if queue.rotational and not queue.virtual else "512"
        consequence = (
            "sequential scans wait for each request" if now < limits["low"] else "random reads fetch unneeded data"
        )
        yield CheckFinding(
            says=f"{queue.name} reads {now} kB ahead: {consequence}",
            evidence=(Evidence(f"read_ahead_kb {now}", path),),
            fix=kernel_file(path, better, str(now), _BOOT, f"{queue.name}/read_ahead_kb"),
            subject=queue.name,
        )


def _mounts(facts: CheckFacts) -> tuple[MountPoint, ...]:
    """Return the mounts that hold data which must not be lost.

    Raises:
        Missing: No mount is known.
    """
    mounts = facts.have(needs.MACHINE).mounts
    if not mounts:
        raise Missing("mounts", _NOT_PLACED)
    return tuple(mount for mount in mounts if _keeps(mount))


def _archives(facts: CheckFacts) -> Iterator[MountPoint]:
    """Yield mounts that hold the archive of WAL and nothing else that must not be lost."""
    for mount in facts.have(needs.MACHINE).mounts:
        if ARCHIVE in mount.roles and not _keeps(mount):
            yield mount


def _unplaced(facts: CheckFacts) -> Iterator[Unknown]:
    roles = [role for role in facts.have(needs.MACHINE).unplaced if role.startswith(_KEEPS)]
    if roles:
        yield Unknown(
            f"{', '.join(roles)}: a symbolic link may lead to another disk; run as root or the server's account"
        )


def _own_queues(facts: CheckFacts) -> list[Disk]:
    """Return the queues of disks that order requests themselves, not of volumes made of other disks.

    Raises:
        Missing: No disk is known.
    """
    queues = facts.have(needs.MACHINE).queues
    if not queues:
        raise Missing("disks", _NOT_PLACED)
    return [queue for queue in queues if not queue.stacked]


def _together(facts: CheckFacts, limits: Limits) -> Findings:
    for disk in facts.have(needs.DISKS).disks:
        if disk.stacked or not {"data", "wal"} <= set(disk.roles):
            continue
        yield CheckFinding(
            severity=Severity.INFO,
            says=f"WAL and data share {disk.name}: a checkpoint's writes and each commit's flush wait for each other",
            evidence=(Evidence(f"{disk.name} holds {', '.join(disk.roles)}", "/proc/PID/mountinfo, /sys/block"),),
            fix=by_hand("A separate device for pg_wal pays if commits wait (WalSync) while checkpoints write."),
            subject=disk.name,
        )


def _flushes(facts: CheckFacts, limits: Limits) -> Findings:
    measured = facts.have(needs.MEASURED)
    flush = next((limit for limit in measured.ceilings if limit.id == "wal-flush-p99"), None)
    if flush is None:
        yield Unknown(
            next((f"{id_}: {reason}" for id_, reason in measured.missing if id_ == "wal-flushes"), "not measured")
        )
        return
    if flush.value <= limits["warning"]:
        return
    yield CheckFinding(
        severity=Severity.HIGH if flush.value > limits["high"] else Severity.WARNING,
        says=f"1 % of WAL flushes, and the commits that wait for them, take {flush.value:.1f} ms or more",
        evidence=(Evidence(flush.says, flush.source),),
        fix=by_hand("Put pg_wal on a device whose write cache survives a power failure, or on an unshared one."),
    )


CHECKS: Final = (
    Check(
        "DISK-01", _GROUP, "space",
        "A server that cannot write WAL stops; one that cannot extend a table fails statements.",
        "diskusage.html", (needs.FILE_SYSTEMS,), _space, Severity.CRITICAL,
        (
            Threshold("warning", 70, "%", "used: a warning from this share"),
            Threshold("critical", 90, "%", "critical from this share"),
        ),
    ),
    Check(
        "DISK-02", _GROUP, "inodes",
        "Every relation consists of several files; without free inodes none can be created.",
        "diskusage.html", (needs.FILE_SYSTEMS,), _inodes, Severity.CRITICAL,
        (
            Threshold("warning", 80, "%", "used: a warning from this share"),
            Threshold("critical", 95, "%", "critical from this share"),
        ),
    ),
    Check(
        "DISK-03", _GROUP, "kind of file system",
        "Whether data survive a crash depends on how the file system implements fsync.",
        _FILE_SYSTEMS, (needs.MACHINE,), _kind, Severity.CRITICAL,
    ),
    Check(
        "DISK-04", _GROUP, "mount options",
        "Mount options for speed can break the durability of commits.",
        _RELIABILITY, (needs.MACHINE,), _options, Severity.CRITICAL,
    ),
    Check(
        "DISK-05", _GROUP, "I/O scheduler",
        "The kernel orders requests a second time, or shares the disk fairly with unimportant programs.",
        _FILE_SYSTEMS, (needs.MACHINE,), _scheduler,
    ),
    Check(
        "DISK-06", _GROUP, "read-ahead",
        "Read-ahead determines the speed of sequential scans, and the waste of random reads.",
        _FILE_SYSTEMS, (needs.MACHINE,), _read_ahead, Severity.WARNING,
        (
            Threshold("warning", 16384, "kB", "warning above it"),
            Threshold("low", 64, "kB", "warning below it"),
        ),
    ),
    Check(
        "DISK-07", _GROUP, "WAL and data apart",
        "Flushes of commits are small and urgent; writes of checkpoints are large and can wait.",
        "wal-internals.html", (needs.DISKS,), _together, Severity.INFO,
    ),
    Check(
        "DISK-08", _GROUP, "WAL flushes",
        "A commit takes at least one flush, and flushes do not overlap.",
        "pgtestfsync.html", (needs.MEASURED,), _flushes, Severity.HIGH,
        (
            Threshold("warning", 5, "ms", "for the slowest 1 %: warning above it"),
            Threshold("high", 20, "ms", "high above it"),
        ),
    ),
)  # fmt: skip
"""Rows of the registry."""
