"""Unpacks the files of the one file, once for each version and account, and removes them.

A version is unpacked beside its place, compared with its manifest, and then renamed: what has its name is whole,
whoever was killed meanwhile. It is compared once more after a boot, because a power cut loses what was not on the disk
yet, and once a day.
"""

import errno
import fcntl
import hashlib
import io
import mmap
import os
import shutil
import stat
import sys
import tempfile
import time
import zipfile

import __main__ as bootstrap

MANIFEST = "MANIFEST"
PAYLOAD = "tree.zip"
_COMPILED = "__pycache__"
_NEW, _OLD = ".new-", ".old-"
_PATIENCE_S = 120.0
_LOOK_S = 0.1
_HINT = "XDG_CACHE_HOME names another directory, of this account alone"


class Damaged(Exception):
    """A file is not what the manifest says."""


def unpacked():
    """Return the directory with the files of this version, unpacked where it is not there; end where that fails."""
    problems = []
    for place in dict.fromkeys(bootstrap.places()):
        try:
            tree = _in(place)
        except OSError as problem:
            problems.append(f"{place}: {problem.strerror or problem}")
        except (Damaged, zipfile.BadZipFile, ValueError, EOFError) as problem:
            bootstrap.refuse(f"{bootstrap.FILE} is damaged: {problem}", "fetch it again, and compare SHA256SUMS")
        else:
            if problems:
                sys.stderr.write(f"{bootstrap.NAME}: its files are in {place}, not in {problems[0]}\n")
            return tree
    return bootstrap.refuse("there is no directory to unpack it into", *problems, _HINT)


def uninstall():
    """Remove what every version has unpacked for this account, but for those that run; return the exit status."""
    status = 0
    for place in dict.fromkeys(bootstrap.places()):
        try:
            if not _is_there(place) or not bootstrap.is_ours(place):
                continue
            lock = _locked(place)
        except OSError:
            continue
        try:
            for name in sorted(os.listdir(place)):
                status = max(status, _removed(os.path.join(place, name)))
            os.rmdir(place)
        except OSError:
            # What is in use stays in it.
            pass
        finally:
            os.close(lock)
    return status


def _removed(path):
    """Remove the directory of a version; return 1 where it stays."""
    name = os.path.basename(path)
    if not (name.startswith((_NEW, _OLD)) or name.endswith(("-x86_64", "-aarch64"))) or not bootstrap.is_private(path):
        return 0
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _clear_away(path)
    except BlockingIOError:
        sys.stderr.write(f"{bootstrap.NAME}: {path} is in use and stays\n")
        return 1
    except OSError as problem:
        sys.stderr.write(f"{bootstrap.NAME}: {path} stays: {problem.strerror}\n")
        return 1
    finally:
        os.close(descriptor)
    sys.stdout.write(f"removed {path}\n")
    return 0


def _in(place):
    """Return the directory of this version in a place.

    Raises:
        OSError: It cannot be there; the text says why.
        Damaged: The one file itself is.
    """
    _make(place)
    if not bootstrap.is_ours(place):
        raise PermissionError(errno.EPERM, "another account can write there, or on the way")
    if bootstrap.is_noexec(place):
        raise PermissionError(errno.EACCES, "libraries cannot be loaded from there (mounted noexec)")
    tree = os.path.join(place, bootstrap.directory_name())
    if _is_there(tree) and not _writable(place):
        # Somebody has prepared it: an image that is read-only now.
        if bootstrap.is_private(tree) and is_whole(tree):
            return tree
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))
    lock = _locked(place)
    try:
        if bootstrap.stands(tree):
            return tree
        if _is_there(tree):
            if bootstrap.is_private(tree) and is_whole(tree):
                if _stamped(tree) != bootstrap.boot():
                    _compile_anew(tree)
                _stamp(tree)
                return tree
            sys.stderr.write(f"{bootstrap.NAME}: {tree} was changed or damaged, and is unpacked anew\n")
            _clear_away(tree)
        _clear_leftovers(place)
        _unpack(place, tree)
        return tree
    finally:
        os.close(lock)


def _is_there(path):
    return os.path.lexists(path)


def _writable(place):
    return os.access(place, os.W_OK | os.X_OK)


def _make(place):
    """Make a directory with those above it that are missing, for this account only."""
    missing = []
    path = place
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    if missing and not bootstrap.is_ours(path):
        raise PermissionError(errno.EPERM, f"another account can write in {path}")
    for each in reversed(missing):
        try:
            os.mkdir(each, 0o700)
        except FileExistsError:
            # Another first start; or something else of that name, as a link that leads nowhere.
            if not os.path.isdir(each):
                raise NotADirectoryError(errno.ENOTDIR, f"{each} is there, and is no directory") from None
        else:
            # mkdir leaves out what the umask says.
            os.chmod(each, 0o700)


def _locked(place):
    """Return a descriptor of a place, locked where that is possible: one process at a time unpacks and removes."""
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                os.close(descriptor)
                raise OSError(errno.EBUSY, "another process unpacks there, and does not end") from None
            time.sleep(_LOOK_S)
        except OSError:
            # A file system without locks: a name is taken once all the same.
            return descriptor
        else:
            return descriptor


def _clear_leftovers(place):
    """Remove what killed processes have left; the place is locked."""
    for name in os.listdir(place):
        path = os.path.join(place, name)
        if name.startswith((_NEW, _OLD)) and bootstrap.is_private(path):
            shutil.rmtree(path, ignore_errors=True)


def _clear_away(tree):
    """Remove a directory; at no time half of it has its name."""
    place, name = os.path.split(tree)
    aside = os.path.join(place, f"{_OLD}{name}-{os.getpid()}")
    os.rename(tree, aside)
    if stat.S_ISDIR(os.lstat(aside).st_mode):
        shutil.rmtree(aside, ignore_errors=True)
    else:
        os.unlink(aside)


def _unpack(place, tree):
    directory = tempfile.mkdtemp(prefix=_NEW, dir=place)
    usual = os.umask(0o077)
    try:
        with zipfile.ZipFile(bootstrap.FILE) as outer:
            manifest = outer.read(MANIFEST)
            rows = _rows(manifest)
            with zipfile.ZipFile(io.BytesIO(outer.read(PAYLOAD))) as inner:
                for digest, size, path in rows:
                    content = inner.read(path)
                    _check(path, content, digest, size)
                    _write(os.path.join(directory, path), content)
        _write(os.path.join(directory, MANIFEST), manifest)
        if not is_whole(directory):
            raise OSError(errno.EIO, "what was written is not what is read")
        _check_loadable(directory, rows)
        _stamp(directory)
        os.rename(directory, tree)
    except OSError:
        shutil.rmtree(directory, ignore_errors=True)
        if bootstrap.stands(tree):
            # Without locks another first start was faster.
            return
        raise
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    finally:
        os.umask(usual)


def _write(path, content):
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _stamp(tree):
    """Note that the files have been compared since the machine was started."""
    path = os.path.join(tree, bootstrap.STAMP)
    beside = f"{path}.{os.getpid()}"
    _write(beside, bootstrap.boot().encode())
    os.replace(beside, path)


def _stamped(tree):
    try:
        return _content(os.path.join(tree, bootstrap.STAMP)).decode("ascii", "replace")
    except OSError:
        return ""


def _rows(manifest):
    """Return digest, size and path of every file.

    Raises:
        Damaged: The manifest is not the one of this version.
    """
    if not hashlib.sha256(manifest).hexdigest().startswith(bootstrap.TREE):
        raise Damaged("its manifest")
    rows = [line.split(" ", 2) for line in manifest.decode().splitlines()]
    return [(digest, int(size), path) for digest, size, path in rows]


def _check(path, content, digest, size):
    if len(content) != size or hashlib.sha256(content).hexdigest() != digest:
        raise Damaged(path)


def is_whole(tree):
    """Return whether a directory holds the files of this version, and nothing else but compiled modules."""
    try:
        rows = _rows(_content(os.path.join(tree, MANIFEST)))
        for digest, size, path in rows:
            _check(path, _content(os.path.join(tree, path)), digest, size)
        known = {path for _, _, path in rows} | {MANIFEST, bootstrap.STAMP}
        for directory, _, names in os.walk(tree):
            if os.path.basename(directory) != _COMPILED:
                below = os.path.relpath(directory, tree)
                if any(os.path.normpath(os.path.join(below, name)) not in known for name in names):
                    return False
    except (OSError, Damaged, ValueError):
        return False
    return True


def _content(path):
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def _compile_anew(tree):
    """Remove compiled modules: the manifest does not know them, and half of one ends the program."""
    for directory, names, _ in os.walk(tree):
        if _COMPILED in names:
            shutil.rmtree(os.path.join(directory, _COMPILED))


def _check_loadable(tree, rows):
    """Make sure that libraries are loaded from there: a mount or a rule of the system may forbid it.

    Raises:
        OSError: It is forbidden.
    """
    library = next((path for _, _, path in rows if path.endswith(".so")), None)
    if library is not None:
        with open(os.path.join(tree, library), "rb") as file:
            try:
                mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC).close()
            except OSError as problem:
                raise OSError(problem.errno, "libraries cannot be loaded from there") from None
