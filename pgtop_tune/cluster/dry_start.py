"""Dry starts: the server's own programs say whether it would start with other values; the server is not started.

`postgres -C` reads the files and certificates, loads shared_preload_libraries and computes the shared memory (15+), in
a directory that holds nothing of the cluster but its version, its pg_control and the postgresql.auto.conf to be tried.
Source: postgres reference page (-C); postmaster.c (PostmasterMain); documentation of shared_memory_size.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import signal
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import ClusterProblem
from pgtop_tune.base.foreign_directory import ForeignPath, handed_over, is_private_place
from pgtop_tune.cluster.auto_conf import FILE_NAME
from pgtop_tune.cluster.postmaster import pid_of
from pgtop_tune.cluster.service import NOT_RUN, TOO_LONG, run_program
from pgtop_tune.model.instance import ServerPlace
from pgtop_tune.process import guard
from pgtop_tune.process.mount_namespace import check_answers, directory_at, stat_of

_COMPUTED_SINCE: Final = 15
_RINGS: Final = "io_uring"
_RINGS_SINCE: Final = 18
_NO_TLS: Final = ("ssl", "off")
_LEAST: Final = {
    "shared_preload_libraries": "",
    "shared_buffers": "128kB",
    "wal_buffers": "32kB",
    "huge_pages": "off",
    "shared_memory_type": "mmap",
    "listen_addresses": "",
    "external_pid_file": "",
    "logging_collector": "off",
}
_PAST_FILES: Final = re.compile(r"pg_notify|shared memory|semaphore|pg_wal")
_MADE_FOR_RULES: Final = ("pg_notify", "pg_dynshmem", "pg_stat", "pg_stat_tmp", "pg_replslot", "pg_logical")
_COPIED: Final = ("PG_VERSION", "global/pg_control")
_PLAIN_WORDS: Final = ("-c", "log_line_prefix=", "-c", "lc_messages=C", "-c", "log_destination=stderr")
_SEVERITY: Final = re.compile(r"^(FATAL|LOG|DETAIL|HINT|ERROR|CONTEXT):\s+")
_AFTERWARDS: Final = re.compile(r"database system is shut down|other active server|shutting down due|aborting startup")
"""Lines that a server logs after the reason of its end."""
_PREFIX: Final = "pgtop-dry-"
_NEW_S: Final = 60.0
"""Age up to which a directory is no leftover: its program may be about to lock it."""
_MB: Final = 2**20
_TIMEOUT_S: Final = 20.0
_NO_ANSWER: Final = (TOO_LONG, NOT_RUN, -signal.SIGKILL)
"""Exit statuses that say nothing about the server."""
_MOST_BYTES: Final = 2**20


class StartText(Struct, frozen=True):
    """The values that a start is tried with.

    Attributes:
        auto_conf: The text of postgresql.auto.conf.
        options: Parameters of the command line, which win over every file.
        with_rules: Whether the file of access rules is read, too.
    """

    auto_conf: str
    options: tuple[tuple[str, str], ...] = ()
    with_rules: bool = False


class DryStart(Struct, frozen=True):
    """The outcome of a start that was tried.

    Attributes:
        refusal: The server's words where it would not get as far as its shared memory; "" where it would.
        shared_memory_bytes: Shared memory that the server would ask for; None before 15.
        huge_pages: The same in huge pages; None before 15 and where the machine has none.
        libraries: Whether the files of shared_preload_libraries were looked for.
    """

    refusal: str = ""
    shared_memory_bytes: int | None = None
    huge_pages: int | None = None
    libraries: bool = True


def dry_start(
    server_place: ServerPlace,
    text: StartText,
    major: int,
    missing: Callable[[str, str], Sequence[str]] | None = None,
) -> DryStart:
    """Try a postgresql.auto.conf.

    Args:
        server_place: The server.
        text: The values to try.
        major: The server's major version.
        missing: Returns the libraries without a file, for shared_preload_libraries and dynamic_library_path; called
            before 15, where a dry start loads no library. None where that cannot be said.

    Raises:
        ClusterProblem: It cannot be tried: the files of the cluster cannot be read, no directory can be made, or the
            program cannot be run.
    """
    names = (
        "shared_memory_size",
        "shared_memory_size_in_huge_pages",
        *(("io_method",) if major >= _RINGS_SINCE else ()),
    )
    with _directory(server_place, text) as directory:
        # Before 15 nothing is computed and no library is loaded: only the files are read.
        parameter_names = names if major >= _COMPUTED_SINCE else ("shared_buffers",)
        options = [word for name, value in text.options for word in ("-c", f"{name}={value}")]
        answers = [_asked(server_place, directory, name, *options) for name in parameter_names]
        refusal = next((message for message, _ in answers if message), "")
        is_older = major < _COMPUTED_SINCE
        if not refusal and (text.with_rules or (is_older and _NO_TLS not in text.options)):
            refusal = _refusal_of_start(server_place, directory, options)
        if not refusal and is_older:
            return _with_libraries(server_place, directory, missing)
    if not refusal and answers[-1][1] == _RINGS:
        refusal = _refusal_of_rings(server_place, text, options)
    if refusal:
        return DryStart(refusal)
    megabytes, pages = (_number(answer) for _, answer in answers[:2])
    return DryStart(
        "", None if megabytes is None else megabytes * _MB, pages if pages is not None and pages > 0 else None
    )


def _refusal_of_start(
    server_place: ServerPlace, directory: ForeignPath, options: Sequence[str], limits_of: int | None = None
) -> str:
    """Return why a server refuses certificates, keys or access rules, which -C does not read.

    A server without data is started. It reads the certificates and makes its shared memory. Without the directories of
    `_MADE_FOR_RULES` it ends there; with them it reads the rules and ends for want of pg_wal, before it writes anything
    (postmaster.c, PostmasterMain; ipci.c, AsyncShmemInit; xlog.c, ValidateXLOGDirectoryStructure).
    """
    least = (f"{name}={value}" for name, value in {**_LEAST, "unix_socket_directories": str(directory)}.items())
    least_options = (word for value in least for word in ("-c", value))
    refusal, _ = _run(server_place, directory, *options, *least_options, limits_of=limits_of)
    return "" if _PAST_FILES.search(refusal) else refusal


def _refusal_of_rings(server: ServerPlace, text: StartText, options: Sequence[str]) -> str:
    """Return why the kernel gives the server no io_uring: memory it may lock, open files, sysctl io_uring_disabled.

    The server makes the rings, one for each process, last in its shared memory (ipci.c, CreateOrAttachShmemStructs).
    The trial has the limits of a restart: systemd's where the server is a unit, else ours.
    """
    pid = None
    with suppress(PermissionError):
        pid = pid_of(Path(server.data_directory)) if server.unit else None
    with _directory(server, replace(text, with_rules=True)) as directory:
        refusal = _refusal_of_start(server, directory, options, limits_of=pid)
    return refusal if _RINGS in refusal else ""


def _with_libraries(
    server_place: ServerPlace, directory: ForeignPath, missing: Callable[[str, str], Sequence[str]] | None
) -> DryStart:
    if missing is None:
        return DryStart(libraries=False)
    names = ("shared_preload_libraries", "dynamic_library_path")
    # Without this option, a line of the log would stand in place of an empty value.
    libraries, path = (_asked(server_place, directory, name, "-c", "log_min_messages=fatal")[1] for name in names)
    try:
        absent = missing(libraries, path)
    except OSError:
        return DryStart(libraries=False)
    return DryStart(f'could not access file "{absent[0]}": No such file or directory') if absent else DryStart()


def _asked(server_place: ServerPlace, directory: ForeignPath, name: str, *more: str) -> tuple[str, str]:
    """Return the words of a refusal, and the value."""
    return _run(server_place, directory, *more, "-C", name)


def _run(
    server_place: ServerPlace, directory: ForeignPath, *more: str, limits_of: int | None = None
) -> tuple[str, str]:
    """Return the words of a refusal, and the last line that the server's program writes."""
    argv = [
        server_place.program,
        *server_place.arguments,
        "-D",
        str(directory),
        "-c",
        f"data_directory={directory}",
        *_PLAIN_WORDS,
    ]
    if server_place.config_file:
        argv += ["-c", f"config_file={server_place.config_file}"]
    argv += more
    ran = run_program(argv, server_place, as_owner=True, timeout_s=_TIMEOUT_S, limits_of=limits_of)
    if ran.status in _NO_ANSWER:
        raise ClusterProblem("; ".join(ran.output_lines) or f"{server_place.program} was killed")
    if ran.status != 0:
        reasons = [_SEVERITY.sub("", line) for line in ran.output_lines if not _AFTERWARDS.search(line)]
        message = "; ".join(reasons[-3:]) or f"{server_place.program} ended with status {ran.status}"
        return message.replace(str(directory), server_place.data_directory), ""
    return "", ran.output_lines[-1].strip() if ran.output_lines else ""


def _number(answer: str) -> int | None:
    return int(answer) if answer.lstrip("-").isdecimal() else None


@contextmanager
def _directory(server_place: ServerPlace, text: StartText) -> Iterator[ForeignPath]:
    """Make a directory of the server's account with the files of the trial, in a directory of ours."""
    clear_leftovers()
    try:
        # As root not where another account, whose TMPDIR we have, can replace it.
        base = tempfile.gettempdir()
        is_fit = os.geteuid() != 0 or is_private_place(base)
        own_directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base if is_fit else "/tmp"))
        lock = _locked(own_directory)
    except OSError as error:
        raise ClusterProblem(f"no directory for a test start can be created: {error.strerror}") from None
    try:
        if server_place.config_file:
            check_answers(server_place.config_file)
        with directory_at(server_place.data_directory) as data:
            if server_place.uid not in (None, data.uid):
                raise PermissionError(errno.EPERM, "its owner is not the server's user", server_place.data_directory)
            files = {name: data.read(name, _MOST_BYTES) for name in _COPIED}
        files[FILE_NAME] = text.auto_conf.encode("utf-8", "surrogateescape")
        files |= {f"{name}/.made": b"" for name in _MADE_FOR_RULES if text.with_rules}
        if os.geteuid() == 0:
            own_directory.chmod(0o711)
        with handed_over(own_directory, "cluster", server_place.uid, server_place.gid, files) as directory:
            yield directory.path
    except OSError as error:
        raise ClusterProblem(
            f"{error.filename or server_place.data_directory} cannot be read: {error.strerror}"
        ) from None
    finally:
        guard.remove_directory(str(own_directory))
        os.close(lock)


def clear_leftovers() -> None:
    """Remove directories of this account's trials whose program was killed: no process holds their lock."""
    directory = tempfile.gettempdir()
    if not is_private_place(directory):
        return
    for name in os.listdir(directory):
        if name.startswith(_PREFIX):
            with suppress(OSError):
                path = f"{directory}/{name}"
                status = os.lstat(path)
                if status.st_uid == os.geteuid() and time.time() - status.st_mtime > _NEW_S:
                    lock = _locked(path)
                    guard.remove_directory(path)
                    os.close(lock)


def _locked(path: str | Path) -> int:
    """Return a descriptor of a directory that holds its lock; no child process inherits it.

    Raises:
        OSError: It is gone, or another process holds the lock.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


# The search for libraries as a server does it, for majors whose programs cannot be asked whether they find them.
#
# Source: dfmgr.c (expand_dynamic_library_name, find_in_dynamic_libpath).

_MACRO: Final = "$libdir"
_SUFFIXES: Final = ("", ".so")


def missing(names: Sequence[str], search_path: str, library_directory: str, data_directory: Path) -> tuple[str, ...]:
    """Return the libraries for which there is no file.

    Args:
        names: As in shared_preload_libraries.
        search_path: dynamic_library_path.
        library_directory: What $libdir stands for.
        data_directory: Working directory of the server.

    Raises:
        OSError: We may not look.
    """
    return tuple(
        name for name in names if not any(map(_is_file, _places(name, search_path, library_directory, data_directory)))
    )


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(stat_of(str(path)).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _places(name: str, search_path: str, library_directory: str, data_directory: Path) -> Iterator[Path]:
    directories = [""] if "/" in name else [f"{directory}/" for directory in search_path.split(":") if directory]
    for suffix in _SUFFIXES:
        for directory in directories:
            yield Path(f"{directory}{name}{suffix}".replace(_MACRO, library_directory, 1))
    if name:
        yield data_directory / name
