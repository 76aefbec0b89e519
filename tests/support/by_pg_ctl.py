"""A server of a test's own that is started by pg_ctl and belongs to nobody's guard: as an operator's is."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pgtop_tune.cluster.throwaway import Throwaway, configuration_lines


@contextmanager
def by_pg_ctl(made: Throwaway, *, within: Sequence[str] = (), **settings: str) -> Iterator[Throwaway]:
    """A throwaway whose server is ended and started again by pg_ctl; it is stopped in the end.

    Args:
        made: Its directories are used; `make_server` removes them.
        within: Words before its command, which root runs.
        settings: More lines of its configuration.
    """
    made._end("fast")
    with (Path(str(made.data_dir)) / "pgtop-tune.conf").open("a") as file:
        file.write(
            configuration_lines({"unix_socket_directories": str(made.socket_dir), "listen_addresses": "", **settings})
        )
    run_pg_ctl(made, "start", "-w", "-l", str(Path(str(made.socket_dir)) / "own.log"), within=within)
    try:
        yield made
    finally:
        run_pg_ctl(made, "stop", "-m", "immediate", check=False)


def run_pg_ctl(server: Throwaway, *words: str, check: bool = True, within: Sequence[str] = ()) -> None:
    """pg_ctl with this server's directory, as its user."""
    owner = Path(str(server.data_dir)).stat()
    become = owner.st_uid != os.geteuid() and not within
    own = ("setpriv", f"--reuid={owner.st_uid}", f"--regid={owner.st_gid}", "--clear-groups") if within else ()
    subprocess.run(
        [*within, *own, str(server._programs.program("pg_ctl")), *words, "-D", str(server.data_dir)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        user=owner.st_uid if become else None,
        group=owner.st_gid if become else None,
        extra_groups=[] if become else None,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C", **server._programs.environment()},
        cwd="/",
        timeout=120,
        check=check,
    )


def auto_conf_of(server: Throwaway) -> bytes:
    """postgresql.auto.conf, byte for byte."""
    return Path(Path(str(server.data_dir)) / "postgresql.auto.conf").read_bytes()
