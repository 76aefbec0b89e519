"""A supervisor in a process of its own: its child does not outlive the program that started it, however that program
ends.

Run as a file, not imported: `python -I -S guard.py --signal INT --grace 5 [options] -- argv…`; see `OPTIONS`.
Standard input is a pipe of which only the parent holds the writing end. A line on it is the name of a signal to
pass on to the child and its process group; its end means that the parent is gone or wants an end: the child gets
`--signal`, after `--grace` seconds `--then`, after LAST_GRACE_S more SIGKILL, and then the `--remove` directories are
removed.

The child runs in a session of its own, without standard input, and dies with PR_SET_PDEATHSIG when the guard is
killed. Processes it leaves behind become the guard's (PR_SET_CHILD_SUBREAPER) and are ended too. SIGINT and SIGHUP
are ignored, SIGTERM is an orderly end. The exit status is the child's, 128 + n where signal n ended it.

Source: prctl(2), PR_SET_PDEATHSIG and PR_SET_CHILD_SUBREAPER.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Final, NamedTuple, NoReturn

MARKER: Final = ".pgtop-tune-throwaway"
"""A directory without a file of this name is never removed."""

LAST_GRACE_S: Final = 2.0
FAILED_TO_START: Final = 127
WRONG_USAGE: Final = 64

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36


class GuardOrder(NamedTuple):
    """The command line; numbers are signal numbers, file descriptors and seconds."""

    argv: tuple[str, ...]
    first: int = signal.SIGINT
    then: int = signal.SIGKILL
    grace_s: float = 5.0
    remove: tuple[str, ...] = ()
    remove_on_exit: bool = False
    user: tuple[int, int] | None = None
    pid_fd: int | None = None


def signal_number(name: str) -> int:
    """Return the number of a signal given as `INT` or `SIGINT`.

    Raises:
        ValueError: No such signal.
    """
    try:
        return signal.Signals["SIG" + name.upper().removeprefix("SIG")].value
    except KeyError:
        raise ValueError(f"no signal is named {name!r}") from None


def _absolute(value: str) -> str:
    if not os.path.isabs(value):
        raise ValueError(f"not an absolute path: {value!r}")
    return value


def _uid_and_gid(value: str) -> tuple[int, int]:
    uid, _, gid = value.partition(":")
    return int(uid), int(gid)


OPTIONS: Final[dict[str, tuple[str, Callable[[str], object]]]] = {
    "--signal": ("first", signal_number),
    "--then": ("then", signal_number),
    "--grace": ("grace_s", float),
    "--remove": ("remove", _absolute),
    "--user": ("user", _uid_and_gid),
    "--pid-fd": ("pid_fd", int),
}
"""Options with a value: the field of Order and how its text is read. `--remove` may be given again."""


def parse(arguments: list[str]) -> GuardOrder:
    """Return the order that the words of the command line give.

    Raises:
        ValueError: An unknown option, a value out of place, no command after `--`.
    """
    fields: dict[str, object] = {}
    remove: list[str] = []
    remaining_words = iter(arguments)
    for word in remaining_words:
        if word == "--":
            break
        if word == "--remove-on-exit":
            fields["remove_on_exit"] = True
            continue
        if word not in OPTIONS:
            raise ValueError(f"unknown option {word!r}")
        field, read = OPTIONS[word]
        value = next(remaining_words, None)
        if value is None:
            raise ValueError(f"{word} needs a value")
        if field == "remove":
            remove.append(_absolute(value))
        else:
            fields[field] = read(value)
    argv = tuple(remaining_words)
    if not argv:
        raise ValueError("no command after --")
    return GuardOrder(argv, remove=tuple(remove), **fields)  # type: ignore[arg-type]


def _prctl() -> Callable[[int, int], object]:
    if not sys.platform.startswith("linux"):
        return lambda option, value: None
    import ctypes

    function = ctypes.CDLL(None).prctl
    return lambda option, value: function(option, ctypes.c_ulong(value), 0, 0, 0)


def _execute(argv: tuple[str, ...]) -> NoReturn:
    """Replace this process as `os.execvp` does, but imports nothing: the account may be unable to read the
    interpreter's library.

    Raises:
        OSError: Why the last file of that name that there is cannot be executed, or that there is none.
    """
    directories = [""] if "/" in argv[0] else os.environ.get("PATH", os.defpath).split(os.pathsep)
    failure: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for directory in directories:
        try:
            os.execv(os.path.join(directory, argv[0]), argv)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as problem:
            failure = problem
    raise failure


def _become_child(order: GuardOrder, prctl: Callable[[int, int], object], guard_pid: int, report_fd: int) -> NoReturn:
    try:
        os.setsid()
        # Also those that our parent ignored or blocked: `trap '' INT` in a shell, nohup, a supervisor.
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        if order.user is not None:
            uid, gid = order.user
            os.setgroups([gid])
            os.setgid(gid)
            os.setuid(uid)
        # A change of user clears the death signal, so it is set after it.
        prctl(_PR_SET_PDEATHSIG, order.then)
        if os.getppid() != guard_pid:
            os._exit(FAILED_TO_START)
        _execute(order.argv)
    except OSError as problem:
        os.write(report_fd, f"{problem.errno}".encode())
    finally:
        os._exit(FAILED_TO_START)


def _start(order: GuardOrder, prctl: Callable[[int, int], object]) -> tuple[int, int]:
    """Child's pid and 0, or its pid and the errno that kept it from starting."""
    guard_pid = os.getpid()
    # The writing end closes on exec: its end without a word means that the child runs.
    report_out, report_in = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become_child(order, prctl, guard_pid, report_in)
    os.close(report_in)
    word = os.read(report_out, 32)
    os.close(report_out)
    return pid, int(word or 0)


class _ChildWatch:
    """One child: passes signals on, and knows when it has ended."""

    def __init__(self, pid: int, wake_fd: int) -> None:
        self.pid = pid
        self.status: int | None = None
        self.told_to_end = False
        self._wake_fd = wake_fd
        self._words = b""

    def send(self, number: int) -> None:
        """Pass a signal on to the child's process group; a stopped child is woken so that it can act on it."""
        if self.status is not None:
            return
        try:
            os.killpg(self.pid, number)
            if number != signal.SIGSTOP:
                os.killpg(self.pid, signal.SIGCONT)
        except ProcessLookupError:
            pass

    def wait(self, timeout_s: float | None, listen: bool) -> None:
        """Return when the child has ended, an end is asked for (only if listening), or time is over."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not (self._reap() or (listen and self.told_to_end)):
            remaining_s = None if deadline is None else deadline - time.monotonic()
            if remaining_s is not None and remaining_s <= 0:
                return
            sources = [self._wake_fd, 0] if listen else [self._wake_fd]
            ready, _, _ = select.select(sources, [], [], remaining_s)
            if self._wake_fd in ready and signal.SIGTERM in os.read(self._wake_fd, 512):
                self.told_to_end = True
            if 0 in ready:
                self._read_words()

    def _read_words(self) -> None:
        chunk = os.read(0, 512)
        if not chunk:
            self.told_to_end = True
            return
        *lines, self._words = (self._words + chunk).split(b"\n")
        for line in lines:
            try:
                self.send(signal_number(line.decode("ascii", "replace")))
            except ValueError:
                continue

    def _reap(self) -> bool:
        """Collect everything that has ended; True when the child is among it, now or before."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid == self.pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status is not None


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as listing:
            return [int(word) for word in listing.read().split()]
    except OSError:
        return []


def _end_orphans(grace_s: float) -> None:
    """Wait for processes the child has left behind, and kills those that stay."""
    deadline = time.monotonic() + grace_s
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid:
            continue
        late = time.monotonic() >= deadline
        if late:
            children = _children()
            if not children:
                return
            for orphan in children:
                os.kill(orphan, signal.SIGKILL)
        time.sleep(0.01)


def remove_ours(path: str) -> bool:
    """Remove a directory that holds MARKER and is not a link; whether it is gone."""
    if not os.path.isabs(path) or os.path.islink(path):
        return False
    if not os.path.lexists(os.path.join(path, MARKER)):
        return not os.path.lexists(path)
    return remove_directory(path)


def remove_directory(path: str) -> bool:
    """Remove a directory of ours in which other accounts may have theirs; return whether it is gone.

    No link is followed, and no pipe waited for, whatever is swapped meanwhile: `shutil.rmtree` opens a name that was a
    directory a moment ago, and waits where it is a pipe by then.
    """
    # A backend on its way out may still make a file: look again.
    for _ in range(20):
        try:
            _empty_below(None, path)
            os.rmdir(path)
        except (OSError, RecursionError):
            pass
        if not os.path.lexists(path):
            return True
        time.sleep(0.05)
    return False


def _empty_below(holding: int | None, name: str) -> None:
    """Empty a directory as far as possible.

    Raises:
        OSError: The path is no directory.
        RecursionError: The tree is too deep.
    """
    directory = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=holding)
    try:
        for entry in os.listdir(directory):
            try:
                os.unlink(entry, dir_fd=directory)
            except OSError:
                # A directory, or a name that is gone.
                try:
                    _empty_below(directory, entry)
                    os.rmdir(entry, dir_fd=directory)
                except OSError:
                    continue
    finally:
        os.close(directory)


def _tell(fd: int | None, line: str) -> None:
    if fd is None:
        return
    try:
        os.write(fd, line.encode() + b"\n")
    except OSError:
        pass
    os.close(fd)


def supervise(order: GuardOrder) -> int:
    """Run the child to its end; its status, 128 + n where signal n ended it."""
    wake_out, wake_in = os.pipe()
    os.set_blocking(wake_in, False)
    signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if order.pid_fd is not None:
        os.set_inheritable(order.pid_fd, False)
    prctl = _prctl()
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    pid, failed = _start(order, prctl)
    _tell(order.pid_fd, f"error {failed}" if failed else str(pid))
    watch = _ChildWatch(pid, wake_out)
    watch.wait(None, listen=True)
    steps = ((order.first, order.grace_s), (order.then, LAST_GRACE_S), (int(signal.SIGKILL), None))
    for step, patience_s in steps:
        if watch.status is None:
            watch.send(step)
            watch.wait(patience_s, listen=False)
    _end_orphans(LAST_GRACE_S)
    if watch.told_to_end or order.remove_on_exit:
        for path in order.remove:
            remove_ours(path)
    status = watch.status if watch.status is not None else FAILED_TO_START
    return 128 - status if status < 0 else status


def main() -> NoReturn:
    """Return the command line; see the module's text."""
    try:
        order = parse(sys.argv[1:])
    except ValueError as problem:
        sys.stderr.write(f"guard: {problem}\n")
        sys.exit(WRONG_USAGE)
    os._exit(supervise(order))


if __name__ == "__main__":
    main()
