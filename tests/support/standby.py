"""A streaming standby of a throwaway server, made as an operator would: with pg_basebackup."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from pgtop_tune.cluster.binaries import Binaries
from pgtop_tune.cluster.throwaway import Throwaway


def standby_of(primary: Throwaway, make_server: Callable[..., Throwaway], slot: str, tools: Binaries) -> Throwaway:
    """A running standby that streams over a new slot.

    Args:
        primary: Runs; its settings are the standby's too.
        make_server: The fixture; ends the standby after the test.
        slot: Name of the slot to make.
        tools: Where pg_basebackup is; a newer one copies older servers.
    """
    standby = make_server(primary.binaries.major)
    copy = Path(str(standby.socket_dir)) / "copy"
    subprocess.run(
        [
            str(tools.program("pg_basebackup")), f"--pgdata={copy}", f"--host={primary.socket_dir}",
            f"--username={primary.user}", "--checkpoint=fast", "--no-sync", "--create-slot",
            f"--slot={slot}",
        ],
        env={**os.environ, **tools.environment()}, check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    (copy / "standby.signal").touch()
    # pg_basebackup would write options that an older server's libpq does not know.
    with (copy / "postgresql.auto.conf").open("a") as settings:
        settings.write(f"primary_conninfo = 'host={primary.socket_dir} port={primary.port} user={primary.user}'\n")
        settings.write(f"primary_slot_name = '{slot}'\n")
    owner = Path(str(standby.data_dir)).stat()
    for path in (copy, *copy.rglob("*")):
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
    # Not `restart`: the server that ends would write its last checkpoint into the directory of the one that starts.
    standby._end("fast")
    shutil.rmtree(Path(str(standby.data_dir)))
    copy.rename(Path(str(standby.data_dir)))
    standby._start()
    return standby
