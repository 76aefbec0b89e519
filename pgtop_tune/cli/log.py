"""The file of --log-file: messages, events and the exit status of a command, without secrets."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pgtop_tune.base.config import LOG_FILE, LOG_LEVEL
from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.safe_text import printable_lines
from pgtop_tune.base.secret import without_secrets
from pgtop_tune.cli import output
from pgtop_tune.runtime.ports import Step

LEVELS: Final = ("debug", "info", "warning", "error")


def begin(arguments: Sequence[str]) -> None:
    """Open the file, and log the command, each message from now on, and with the level debug each result.

    Raises:
        UsageProblem: The file cannot be written, or there is no such level.
    """
    path, level = Path(os.environ[LOG_FILE]).expanduser(), os.environ.get(LOG_LEVEL, "info").lower()
    if level not in LEVELS:
        raise UsageProblem(f"{level!r} is no log level", f"pass {', '.join(LEVELS)}")
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as problem:
        raise UsageProblem(
            f"{path} cannot be written: {problem.strerror}", "choose another file for --log-file"
        ) from None
    if os.fstat(descriptor).st_uid != os.geteuid():
        raise UsageProblem(f"{path} belongs to another account", "choose another file for --log-file")
    logged = LEVELS[LEVELS.index(level) :]

    def write(of_level: str, text: str) -> None:
        if of_level not in logged:
            return
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        lines = "".join(f"{stamp} {os.getpid()} {of_level} {line}\n" for line in printable_lines(without_secrets(text)))
        try:
            os.write(descriptor, lines.encode("utf-8", "replace"))
        except OSError:
            # A full disk behind the log ends no work.
            return

    output.log_with(write)
    # Masked word by word: the quotes of a shell tear those of a password apart.
    write("info", f"pgtop-tune {shlex.join(map(without_secrets, arguments))}")


class EventLog:
    """A sink that logs the events of frames."""

    def accept(self, step: Step) -> None:
        """See `FrameSink.accept`."""
        for frame in step.frames:
            for event in frame.events:
                output.log("info", ": ".join(filter(None, (str(event.kind), event.text, event.detail))))

    def close(self) -> None:
        """See `FrameSink.close`."""


def event_logs() -> tuple[EventLog, ...]:
    """Return the sink for --log-file; none without one."""
    return (EventLog(),) if os.environ.get(LOG_FILE) else ()
