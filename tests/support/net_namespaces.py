"""Network namespaces that stand for other machines: each has a link of its own to this one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pgtop_tune.cluster.throwaway import Throwaway
from tests.support.by_pg_ctl import by_pg_ctl

_NET: Final = "198.18.{}.{}"
"""Of 198.18.0.0/15, which is for measuring networks (RFC 2544)."""
_MOST: Final = 256
PORT: Final = 5432
DEVICE: Final = "eth0"
"""Of the link inside."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace; `here` and `there` are the addresses of its link's ends.

    Attributes:
        link: Device of the link on this side.
    """

    name: str
    link: str
    here: str
    there: str

    @property
    def within(self) -> tuple[str, ...]:
        """Words before a command that runs inside."""
        return ("ip", "netns", "exec", self.name)


def ip(*words: str) -> None:
    """Run ip; raises CalledProcessError with its message."""
    subprocess.run(["ip", *words], check=True, capture_output=True, stdin=subprocess.DEVNULL)


def why_not() -> str:
    """Why there can be no namespace here; "" when there can."""
    name = f"pgtop-try-{os.getpid()}"
    try:
        ip("netns", "add", name)
        ip("netns", "del", name)
    except (OSError, subprocess.CalledProcessError) as problem:
        return f"no network namespaces: {getattr(problem, 'stderr', b'').decode().strip() or problem}"
    return ""


@contextmanager
def namespace() -> Iterator[Namespace]:
    """Makes one, whose default route leads here."""
    made = _linked()
    try:
        for words in (("addr", "add", f"{made.there}/30", "dev", DEVICE), ("link", "set", DEVICE, "up"),
                      ("link", "set", "lo", "up"), ("route", "add", "default", "via", made.here)):  # fmt: skip
            ip("-n", made.name, *words)
        yield made
    finally:
        # The kernel takes the links of a namespace away some time after it.
        ip("link", "del", made.link)
        ip("netns", "del", made.name)


@contextmanager
def on_link(made: Throwaway, space: Namespace) -> Iterator[Throwaway]:
    """A server that listens at this side of the link too, and lets everybody in there."""
    with (Path(str(made.data_dir)) / "pg_hba.conf").open("a") as rules:
        rules.write("host all all 198.18.0.0/15 trust\n")
    with by_pg_ctl(made, listen_addresses=space.here, port=str(PORT)) as server:
        yield server


def _linked() -> Namespace:
    """The first number whose device nobody has is taken: another run may be under way."""
    for number in range(_MOST):
        made = Namespace(f"pgtop-{number}", f"pgtop{number}", _NET.format(number, 1), _NET.format(number, 2))
        with suppress(subprocess.CalledProcessError):
            ip("netns", "add", made.name)
            try:
                ip("link", "add", made.link, "type", "veth", "peer", "name", DEVICE, "netns", made.name)
                ip("addr", "add", f"{made.here}/30", "dev", made.link)
                ip("link", "set", made.link, "up")
            except BaseException:
                ip("netns", "del", made.name)
                raise
            return made
    raise AssertionError("no number is free")
