"""A PostgreSQL that was compiled with assertions: a given one, else made of the distribution's own source, once.

The source is asked for where the machine's packages come from, through a configuration of apt that is gone afterwards.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pgtop_tune.base.errors import ClusterProblem
from pgtop_tune.cluster.binaries import Binaries, inspect
from tests.support.servers import STORE, NotAvailable, only_one_at_a_time

GIVEN: Final = "PGTOP_TUNE_ASSERTION_BUILD"
"""Environment variable that names such a build: the directory that has its bin and lib."""
WHAT: Final = "compiled with assertions"
"""What it is called where servers are counted."""

_PLACE: Final = "assertions"
_CONFIGURE: Final = ("--enable-cassert", "--without-readline", "--without-icu", "--without-zlib", "CFLAGS=-O0")
_MINUTE_S: Final = 60.0


def assertion_build() -> Binaries:
    """Programs of a server with assertions. Making them takes some minutes; they are kept in the servers' directory.

    Raises:
        NotAvailable: No source, no compiler, or it does not compile.
    """
    given = os.environ.get(GIVEN)
    if given:
        return _looked_at(Path(given))
    STORE.mkdir(exist_ok=True)
    with only_one_at_a_time(STORE / f"{_PLACE}.lock"):
        kept = STORE / _PLACE
        if not kept.is_dir():
            _make(kept)
    return _looked_at(kept)


def _looked_at(build: Path) -> Binaries:
    try:
        return inspect(build / "bin", WHAT, build / "lib")
    except ClusterProblem as problem:
        raise NotAvailable(problem.message) from problem


def _make(kept: Path) -> None:
    with tempfile.TemporaryDirectory(dir=STORE, prefix="source-") as scratch:
        work = Path(scratch)
        source = _source(work)
        made = work / "made"
        _run("configure", [source / "configure", f"--prefix={made}", *_CONFIGURE], source, 10 * _MINUTE_S)
        _run("make", ["nice", "make", f"-j{os.cpu_count() or 1}"], source, 60 * _MINUTE_S)
        _run("make install", ["make", "install"], source, 5 * _MINUTE_S)
        shutil.move(made, kept)


def _source(work: Path) -> Path:
    """Unpacks the source of the distribution's PostgreSQL below a directory."""
    options = [f"-o{name}={value}" for name, value in _apt_of_our_own(work).items()]
    named = re.search(r"Depends: (postgresql-\d+)", _run("apt-cache", ["apt-cache", "depends", "postgresql"], work))
    if named is None:
        raise NotAvailable("apt does not know a postgresql")
    package = named[1]
    _run("apt-get update", ["apt-get", *options, "-q", "update"], work, 5 * _MINUTE_S)
    told = _run("apt-cache", ["apt-cache", *options, "showsrc", package], work)
    why = NotAvailable(f"there is no source of {package}")
    # Any minor release does, and a mirror need not have all that it lists.
    for version in reversed(re.findall(r"^Version: (\S+)", told, re.MULTILINE)):
        try:
            words = ["apt-get", *options, "-q", "source", f"{package}={version}"]
            _run("apt-get source", words, work, 10 * _MINUTE_S)
        except NotAvailable as problem:
            why = problem
            continue
        return next(path.parent for path in work.glob("*/configure"))
    raise why


def _apt_of_our_own(work: Path) -> Mapping[str, str]:
    """Options of apt for lists of source packages, from where its lists of binary packages are from."""
    answer = _run("apt-get", ["apt-get", "indextargets", "--format", "$(SOURCESENTRY)", "Created-By: Packages"], work)
    files = sorted({Path(line.rpartition(":")[0]) for line in answer.splitlines()})
    if not files:
        raise NotAvailable("apt has no lists: apt-get update")
    parts, lists, cache = work / "apt" / "parts", work / "apt" / "lists", work / "apt" / "cache"
    for directory in (parts, lists / "partial", cache / "archives" / "partial"):
        directory.mkdir(parents=True)
    for file in files:
        text = re.sub(r"^Types:.*$", "Types: deb-src", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
        (parts / file.name).write_text(re.sub(r"^deb\s", "deb-src ", text, flags=re.MULTILINE), encoding="utf-8")
    return {
        "Dir::Etc::SourceList": "/dev/null",
        "Dir::Etc::SourceParts": str(parts),
        "Dir::State::Lists": str(lists),
        "Dir::Cache": str(cache),
    }


def _run(what: str, words: list[str | Path], work: Path, limit_s: float = _MINUTE_S) -> str:
    """What a program printed.

    Raises:
        NotAvailable: It is not there, fails, or takes longer than that.
    """
    try:
        answer = subprocess.run(
            words,
            cwd=work,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
        )
    except FileNotFoundError:
        raise NotAvailable(f"no {words[0]}") from None
    except subprocess.TimeoutExpired:
        raise NotAvailable(f"{what} took too long") from None
    if answer.returncode != 0:
        last = (answer.stderr.strip() or answer.stdout.strip() or "no word").splitlines()[-1]
        raise NotAvailable(f"{what} failed: {last}")
    return answer.stdout
