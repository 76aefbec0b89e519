"""Situations on real servers, and what the diagnosis says of their recordings."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
from msgspec import Struct

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.diagnosis.diagnoser import Diagnoser
from pgtop_tune.diagnosis.facts import Facts
from pgtop_tune.diagnosis.finding import Finding
from pgtop_tune.metrics.load import under_way
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.session import Session
from tests.cli.runs import run
from tests.support.recordings import read
from tests.support.servers import conninfo

SECONDS = 26
JUDGED_S = 9.0
CGROUPS = Path("/sys/fs/cgroup")


class Said(Struct, frozen=True):
    """What was first in the last seconds of a recording.

    Attributes:
        rules: By number of seconds.
        last: The last finding of the most frequent rule.
        others: Rules that stood behind it.
        taken: Mean share of the machine's CPUs that other programs took meanwhile, 0 to 1; 0 where it is not known.
    """

    rules: Counter[str]
    last: Finding
    others: tuple[str, ...]
    taken: float


def said_of(recording: Path, judged_s: float = JUDGED_S) -> Said:
    """The recording, frame by frame as a session sees it, to the end of its load."""
    frames, _ = read(recording)
    loaded = [number for number, frame in enumerate(frames) if under_way(frame)]
    frames = frames[: loaded[-1] + 1] if loaded else frames
    session, diagnosing = Session(), Diagnoser()
    seen: list[tuple[float, tuple[Finding, ...]]] = []
    taken: list[tuple[float, float]] = []
    for frame in frames:
        session.apply(Step((frame,)))
        assert session.interval is not None
        seen.append((frame.elapsed_s, diagnosing.look(session.interval).findings))
        facts = Facts(session.interval)
        taken.append((frame.elapsed_s, (facts.other_cpus or 0.0) / (facts.machine_cpus or 1)))
    judged = [findings for at_s, findings in seen if at_s > seen[-1][0] - judged_s]
    rules = Counter(findings[0].rule for findings in judged)
    rule = rules.most_common(1)[0][0]
    last = next(findings for findings in reversed(judged) if findings[0].rule == rule)
    shares = [share for at_s, share in taken if at_s > seen[-1][0] - judged_s]
    return Said(rules, last[0], tuple(finding.rule for finding in last[1:]), sum(shares) / len(shares))


def under_load(
    server: Throwaway,
    home: Path,
    *words: str,
    script: str = "",
    seconds: int = SECONDS,
    beside: Callable[[threading.Event], None] | None = None,
    variables: Sequence[str] = (),
) -> Path:
    """The recording of a pgbench run against it.

    Args:
        words: Options of `bench run`.
        script: Of pgbench, in place of a profile.
        beside: Runs in a thread meanwhile, until the event is set.
    """
    recording, over = home / "run.jsonl.gz", threading.Event()
    if script:
        (home / "load.sql").write_text(script)
        words = (*words, "-f", str(home / "load.sql"))
    other = threading.Thread(target=beside, args=(over,)) if beside else None
    if other is not None:
        other.start()
    try:
        target = conninfo(server)
        options = ("-T", str(seconds), "-q", "--housekeeping", "none", "--record", str(recording), *variables)
        ran = run("bench", "run", *words, *options, target, home=home, timeout_s=seconds + 90)
    finally:
        over.set()
        if other is not None:
            other.join()
    assert recording.exists(), ran.err
    return recording


def without_load(server: Throwaway, home: Path, seconds: int = 16) -> Path:
    """The recording of a server that is only watched."""
    recording = home / "run.jsonl.gz"
    ran = run("record", "-q", "-o", str(recording), "--seconds", str(seconds), conninfo(server), home=home)
    assert recording.exists(), ran.err
    return recording


def connect(server: Throwaway, name: str = "psql") -> psycopg.Connection[tuple[object, ...]]:
    """A session that is no load."""
    return psycopg.connect(conninfo(server), autocommit=True, application_name=name)


def initialised(server: Throwaway, home: Path, scale: int) -> None:
    """The tables of pgbench."""
    made = run("bench", "init", "-s", str(scale), conninfo(server), home=home, timeout_s=180)
    assert made.status == 0, made.err


def spinner() -> subprocess.Popen[bytes]:
    """A program that wants a CPU of its own."""
    return subprocess.Popen([sys.executable, "-c", "while True: pass"])


@contextmanager
def control_group(controller: str, server: Throwaway, **limits: str) -> Iterator[None]:
    """The server in a control group (version 1) with these limits; its processes leave it afterwards."""
    group = CGROUPS / controller / f"pgtop-tune-{os.getpid()}"
    group.mkdir()
    try:
        for name, value in limits.items():
            (group / name.replace("__", ".")).write_text(value)
        postmaster = int((Path(str(server.data_dir)) / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        for pid in (str(postmaster), *children):
            with suppress(ProcessLookupError):
                (group / "cgroup.procs").write_text(pid)
        yield
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):
                (CGROUPS / controller / "cgroup.procs").write_text(pid)
        group.rmdir()


def device_of(path: Path) -> str:
    """ "254:0", the whole disk under a directory."""
    number = path.stat().st_dev
    return f"{os.major(number)}:{os.minor(number)}"
