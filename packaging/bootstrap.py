"""The beginning of the one file, its `__main__`: finds the files of this version in a directory of the account, or
unpacks them there, and starts the program.

It runs before anything is known about the Python that runs it: 3.6 reads it, and only Python's own library is used.
Another account never decides what is run: see `is_ours`.
"""

import os
import stat
import sys
import time

VERSION = "@VERSION@"
TREE = "@TREE@"
"""The beginning of the SHA-256 of the manifest."""
MACHINE = "@MACHINE@"
GLIBC = (0, 0)
"""The oldest that the libraries run with."""
OLDEST, NEWEST = (3, 11, 2), (3, 14)
"""Of Python: the libraries are for these."""

NAME = "pgtop-tune"
FILE = os.path.dirname(os.path.abspath(__file__))
STAMP = ".checked"
"""In the directory of a version: the boot in which its files were compared with the manifest, and when that was."""
FRESH_S = 86400
"""Files of a temporary directory are removed one by one when nobody has read them for a while."""
UNINSTALL = "--uninstall-cache"
FOUND_BY_US = "pgtop_tune_python"
"""An option -X: this Python was found by another one, which was too old."""
UNUSABLE = 2
_OTHERS = 0o077
_OTHERS_WRITE = 0o022
_MOST_LINKS = 40


def directory_name():
    """Return the name of the directory that holds this version."""
    return f"{VERSION}-{TREE}-{MACHINE}"


def places():
    """Yield the directories that may hold it, the best first."""
    account = os.geteuid()
    for variable, below in (("XDG_CACHE_HOME", NAME), ("HOME", ".cache/" + NAME)):
        value = os.environ.get(variable, "")
        if value.startswith("/"):
            yield os.path.join(value, below)
    home = _home(account)
    if home != os.environ.get("HOME"):
        yield os.path.join(home, ".cache", NAME)
    # Not XDG_RUNTIME_DIR: it is removed when the account logs out, and a watchdog may have to revert a change then.
    named = os.environ.get("TMPDIR", "")
    for directory in ("/var/cache", "/var/tmp", "/tmp", named) if account == 0 else ("/var/tmp", "/tmp", named):
        if directory.startswith("/"):
            yield os.path.join(directory, f"{NAME}-{account}")


def _home(account):
    import pwd

    try:
        return pwd.getpwuid(account).pw_dir
    except KeyError:
        return "/root" if account == 0 else "/nonexistent"


def is_ours(path):
    """Return whether only this account and root decide what a path leads to: links and directories on the way are
    theirs, and nobody else writes there, or the directory is sticky as /tmp is.

    Raises:
        OSError: It is not there, or we may not look.
    """
    trusted, account = "/", os.geteuid()
    names, links = path.split("/"), 0
    if not _is_safe(os.lstat("/"), account):
        return False
    while names:
        name = names.pop(0)
        if name in ("", "."):
            continue
        if name == "..":
            trusted = os.path.dirname(trusted)
            continue
        reached = os.path.join(trusted, name)
        status = os.lstat(reached)
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > _MOST_LINKS or status.st_uid not in (0, account):
                return False
            target = os.readlink(reached)
            names = target.split("/") + names
            trusted = "/" if target.startswith("/") else trusted
            continue
        if not _is_safe(status, account):
            return False
        trusted = reached
    return True


def _is_safe(status, account):
    others_write = status.st_mode & _OTHERS_WRITE and not status.st_mode & stat.S_ISVTX
    return status.st_uid in (0, account) and not others_write


def is_private(path):
    """Return whether a path is a directory, no link, that nobody but this account enters."""
    status = os.lstat(path)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & _OTHERS


def is_noexec(path):
    """Return whether nothing in a directory may be run, so that no library is loaded from it."""
    return bool(os.statvfs(path).f_flag & getattr(os, "ST_NOEXEC", 8))


def boot():
    """Return the name that the kernel has given to this boot; "" where nobody knows."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def stands(tree):
    """Return whether the directory of this version can be used as it is, by owner, permissions and stamp."""
    try:
        if not (is_ours(tree) and is_private(tree)) or is_noexec(tree):
            return False
        with open(os.path.join(tree, STAMP)) as file:
            return file.read() == boot() and 0 <= time.time() - os.fstat(file.fileno()).st_mtime < FRESH_S
    except OSError:
        return False


def wrong_python():
    """Return why this Python cannot be used; "" where it can."""
    running = "{}.{}.{}".format(*sys.version_info[:3])
    if sys.version_info[:3] < OLDEST or sys.version_info[:2] > NEWEST:
        return f"this is Python {running}"
    if sys.implementation.name != "cpython" or set(getattr(sys, "abiflags", "")) - {"m"}:
        kind = "{} {}".format(sys.implementation.name, getattr(sys, "abiflags", "")).strip()
        return f"this Python {running} is a special build ({kind})"
    return ""


def wrong_machine():
    """Return why the libraries do not run here; "" where they do."""
    machine = os.uname().machine
    if machine != MACHINE or sys.maxsize < 2**32:
        width = "" if sys.maxsize > 2**32 else " with a 32-bit Python"
        return f"this file is for {MACHINE}, and this machine is {machine}{width}"
    try:
        words = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
    except (ValueError, OSError):
        words = []
    if not words or words[0] != "glibc":
        return "this file is for glibc, and this system has another C library (musl?)"
    if tuple(int(number) for number in words[1].split(".")[:2]) < GLIBC:
        return f"this file is for glibc {GLIBC[0]}.{GLIBC[1]} or newer, and this system has {words[1]}"
    return ""


def refuse(*lines):
    """Say why nothing is started, and end."""
    for line in lines:
        sys.stderr.write(f"{NAME}: {line}\n")
    sys.exit(UNUSABLE)


def main():
    """Starts the program."""
    reason = wrong_python()
    if reason:
        import pythons

        pythons.start_newer(reason)
    reason = wrong_machine()
    if reason:
        other = os.uname().machine
        refuse(
            reason,
            f"take the file whose name ends with -{other}.pyz"
            if other != MACHINE and other in ("x86_64", "aarch64")
            else "install it from a checkout, into a virtual environment",
        )
    if not (sys.flags.isolated and sys.flags.no_site) and sys.executable:
        # Modules of the account's own directories and variables must not come between.
        os.execv(sys.executable, [sys.executable, "-IS", FILE, *sys.argv[1:]])
    if sys.argv[1:] == [UNINSTALL]:
        import unpacking

        sys.exit(unpacking.uninstall())
    for place in places():
        tree = os.path.join(place, directory_name())
        if stands(tree):
            break
    else:
        import unpacking

        tree = unpacking.unpacked()
    sys.path[:] = [each for each in sys.path if each and os.path.abspath(each) != FILE]
    sys.path.insert(0, tree)
    try:
        import start

        sys.path.remove(tree)
        start.start(archive=FILE)
    except ImportError:
        sys.path.insert(0, FILE)
        import unpacking

        if unpacking.is_whole(tree):
            raise
        os.unlink(os.path.join(tree, STAMP))
        refuse(f"{tree} was changed or damaged", "start it again: it is unpacked anew")


if __name__ == "__main__":
    main()
