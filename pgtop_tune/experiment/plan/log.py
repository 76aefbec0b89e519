"""The journal of an experiment: JSON lines, only appended to, each on the disk before its step is made.

A line that a crash cut off is left out, and cut off from the file by the next one who writes.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any, Final, Self

from pgtop_tune.base.errors import JournalProblem
from pgtop_tune.base.paths import NotOurs, check_own, check_own_directory, experiments_dir, private, read_own

FILE: Final = "journal.jsonl"
RUNS: Final = "runs"
_NAME: Final = 20


def reviewed_dir() -> Path:
    """What `experiment plan` has shown."""
    return experiments_dir() / "reviewed"


def read_entries(directory: Path) -> tuple[dict[str, Any], ...]:
    """The complete lines of an experiment.

    Raises:
        JournalProblem: There is none, or it is not to be trusted.
    """
    try:
        return tuple(entries(read_own(directory / FILE)))
    except NotOurs as why:
        raise JournalProblem(str(why), why.hint) from None
    except OSError as problem:
        raise JournalProblem(
            f"{directory / FILE}: {problem.strerror}", "`experiment status` lists experiments"
        ) from None


def entries(data: bytes) -> Iterator[dict[str, Any]]:
    """What the complete lines say; the rest after a line that is none does not count."""
    for line in data[: complete(data)].splitlines():
        yield json.loads(line)


def complete(data: bytes) -> int:
    """How many bytes are complete lines that are objects."""
    end = 0
    for line in data.splitlines(keepends=True):
        try:
            whole = line.endswith(b"\n") and isinstance(json.loads(line), dict)
        except ValueError:
            whole = False
        if not whole:
            break
        end += len(line)
    return end


class ExperimentLog:
    """The journal open for writing, by one process at a time.

    Attributes:
        directory: Of the experiment.
    """

    def __init__(self, directory: Path) -> None:
        """Opens, and makes where missing.

        Raises:
            JournalProblem: It cannot be written, or another process runs this experiment.
        """
        import fcntl

        self.directory: Final = directory
        path = directory / FILE
        try:
            check_own_directory(private(directory))
            private(directory / RUNS)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptor: Final = os.open(path, flags, 0o600)
        except NotOurs as why:
            raise JournalProblem(str(why), why.hint) from None
        except OSError as problem:
            raise JournalProblem(f"{path}: {problem.strerror}", "XDG_STATE_HOME names another directory") from None
        try:
            check_own(path, self._descriptor)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            data = path.read_bytes()
            os.ftruncate(self._descriptor, complete(data))
        except NotOurs as why:
            os.close(self._descriptor)
            raise JournalProblem(str(why), why.hint) from None
        except BlockingIOError:
            os.close(self._descriptor)
            raise JournalProblem(
                "another process runs this experiment", "`experiment status` shows how far it is"
            ) from None
        except OSError as problem:
            os.close(self._descriptor)
            raise JournalProblem(f"{path}: {problem.strerror}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def write(self, kind: str, **values: Any) -> None:
        """Appends a line with its time (at_ms, milliseconds since the epoch); on the disk then.

        Raises:
            JournalProblem: It could not be written; the file is as it was.
        """
        line = (
            json.dumps({"kind": kind, "at_ms": time.time_ns() // 1_000_000, **values}, ensure_ascii=True) + "\n"
        ).encode()
        size = os.fstat(self._descriptor).st_size
        try:
            if os.write(self._descriptor, line) != len(line):
                raise OSError("the disk is full")
            os.fsync(self._descriptor)
        except OSError as problem:
            os.ftruncate(self._descriptor, size)
            words = problem.strerror or str(problem)
            raise JournalProblem(f"{self.directory / FILE} cannot be written: {words}", "free some space") from None


def new_directory(plan: str) -> Path:
    """Where a new experiment is kept: "20261123-192231-P1".

    Raises:
        JournalProblem: It cannot be made.
    """
    words = "".join(filter(str.isalnum, plan))[:_NAME]
    base = experiments_dir() / f"{datetime.now():%Y%m%d-%H%M%S}-{words}"
    for number in count(1):
        directory = base if number == 1 else base.with_name(f"{base.name}-{number}")
        try:
            private(base.parent)
            directory.mkdir(mode=0o700)
        except FileExistsError:
            continue
        except OSError as problem:
            raise JournalProblem(f"{directory}: {problem.strerror}") from None
        return directory
    raise AssertionError


def newest(name: str) -> Path | None:
    """The directory of the last experiment of a plan of that name, None where there is none."""
    found = [path for path in experiments() if str(first(path).get("name", "")).lower() == name.lower()]
    return found[-1] if found else None


def experiments() -> tuple[Path, ...]:
    """Directories of all experiments, oldest first."""
    base = experiments_dir()
    if not base.is_dir():
        return ()
    return tuple(sorted((path.parent for path in base.glob(f"*/{FILE}")), key=lambda path: path.name))


def first(directory: Path) -> Mapping[str, Any]:
    """The first line: what the experiment is; empty where it cannot be read."""
    try:
        return next(iter(read_entries(directory)), {})
    except JournalProblem:
        return {}


def is_running(directory: Path) -> bool:
    """Whether a process holds the journal."""
    import fcntl

    try:
        with open(directory / FILE, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
