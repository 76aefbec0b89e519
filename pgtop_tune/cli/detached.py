"""Runs that survive the terminal: a command that is started again in a session of its own, with its lines in a file.

`experiment attach` follows that file. A run is known by the key of its process, not by its pid alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.paths import NotOurs, experiments_dir, new_file, private, read_own, replacing
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cli.output import say, tell
from pgtop_tune.process import handed_on
from pgtop_tune.process.own_program import own_argv
from pgtop_tune.process.process_key import Interruption, ProcessKey, process_key_of
from pgtop_tune.runtime.running_experiments import DETACHED

_OPTION: Final = "--detach"
_LOOK_S: Final = 0.2


class DetachedRun(Struct, frozen=True):
    """A run that was started with --detach.

    Attributes:
        name: Stem of its files.
        key: Its process.
        command: Its first words, without options that could hold a password.
        log: File of its lines.
    """

    name: str
    key: ProcessKey
    command: str
    log: str


def start_detached(command: Sequence[str]) -> int:
    """Start this command again, detached from the terminal, and say how to follow it.

    Args:
        command: Name of the command, as in "experiment run".

    Raises:
        UsageProblem: The files of the run cannot be made.
    """
    name = f"{'-'.join(command)}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    log = _directory() / f"{name}.log"
    try:
        argv = own_argv()
    except OSError as problem:
        raise UsageProblem(f"the run cannot be detached: {problem.strerror}") from None
    try:
        private(log.parent)
        line = [word for word in handed_on.command_line(sys.argv[1:]) if word != _OPTION]
        password = handed_on.inherited_password()
        with new_file(log) as file, handed_on.descriptor(command_line=line, password=password) as secrets:
            # Options may hold passwords: the argument list names the command alone.
            program = subprocess.Popen(
                [*argv, *command],
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
                env={**handed_on.environment(), DETACHED: name, handed_on.VARIABLE: str(secrets)},
                pass_fds=(secrets,),
            )  # fmt: skip
        key = process_key_of(program.pid)
        if key is None:
            raise UsageProblem("the run ended immediately", f"read its output in {log}")
        run = DetachedRun(name=name, key=key, command=" ".join(command), log=str(log))
        with replacing(_directory() / f"{name}.json") as file:
            file.write(msgspec.json.encode(run))
    except OSError as problem:
        raise UsageProblem(f"{log}: {problem.strerror}", "set XDG_STATE_HOME to another directory") from None
    say(f"{name} runs detached, process {key.pid}")
    say(f"follow it: pgtop-tune experiment attach; stop it: pgtop-tune experiment stop {name}")
    return ExitCode.OK


def detached_runs() -> tuple[DetachedRun, ...]:
    """Return the runs that were started, oldest first; a file that cannot be read is none."""
    return tuple(run for path in sorted(_directory().glob("*.json"), key=_made_ns) if (run := _read(path)) is not None)


def attach(name: str) -> int:
    """Print the lines of a run until it ends; Ctrl-C leaves it running. Raises UsageProblem for an unknown name."""
    run = _named(name)
    try:
        for line in _lines(run, lambda: run.key.lives):
            say(one_line(line, 2000))
    except KeyboardInterrupt:
        tell(f"{run.name} keeps running")
        return ExitCode.OK
    tell(f"{run.name} has ended")
    return ExitCode.OK


def stop(name: str) -> int:
    """Interrupt a run as Ctrl-C does, again where that does not help, and show its lines until it has ended.

    Raises:
        UsageProblem: There is no such run, it belongs to another user, or it does not end.
    """
    run = _named(name)
    if not run.key.lives:
        raise UsageProblem(f"{run.name} has ended", f"`pgtop-tune experiment attach {run.name}` prints its output")
    tell(f"waiting for {run.name}, process {run.key.pid}, to end; Ctrl-C stops waiting")
    interruption = Interruption(run.key, run.name, tell)
    for line in _lines(run, interruption.goes_on, from_end=True):
        tell(one_line(line, 2000))
    tell(f"{run.name} has ended")
    return ExitCode.OK


def _lines(run: DetachedRun, goes_on: Callable[[], bool], *, from_end: bool = False) -> Iterator[str]:
    """Yield the lines of a run until it has ended.

    Args:
        goes_on: Asked whether it still runs, before each look at its lines.
        from_end: Leave out earlier lines.
    """
    with open(run.log, encoding="utf-8", errors="replace") as file:
        if from_end:
            file.seek(0, os.SEEK_END)
        partial = ""
        while True:
            # Asked before reading: the last lines are read after its end.
            has_ended = not goes_on()
            *lines, partial = (partial + file.read()).split("\n")
            yield from lines
            if has_ended:
                if partial:
                    yield partial
                return
            time.sleep(_LOOK_S)


def _named(name: str) -> DetachedRun:
    runs = detached_runs()
    running = [run for run in runs if run.key.lives]
    matching = [run for run in runs if run.name == name] if name else running or list(runs)
    if not matching:
        raise UsageProblem(f"no detached run{f' {name}' if name else ''}", "`pgtop-tune experiment status` lists them")
    return matching[-1]


def _directory() -> Path:
    return experiments_dir() / "detached"


def _made_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _read(path: Path) -> DetachedRun | None:
    try:
        return msgspec.json.decode(read_own(path), type=DetachedRun)
    except (OSError, NotOurs, msgspec.DecodeError):
        return None
