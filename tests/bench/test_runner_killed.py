"""We are killed without warning: no pgbench and no directory are left."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from pgtop_tune.bench.ports import LoadEndpoint
from tests.support.processes import alive, eventually

PROGRAM = """
import asyncio, sys
from pathlib import Path
from pgtop_tune.bench.ports import LoadEndpoint
from pgtop_tune.bench.runner import PgbenchRunner
from pgtop_tune.model.bench import LoadSpec

async def main(host, port, user, dbname, base):
    runner = PgbenchRunner(LoadEndpoint(host, int(port), user, dbname), base=Path(base))
    await runner.start(LoadSpec(clients=2))
    sample = runner.sample(0.0)
    while not sample.progress:
        await asyncio.sleep(0.05)
        sample = runner.sample(0.0)
    print(sample.run.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main(*sys.argv[1:]))
"""


def test_after_sigkill_nothing_is_left(tables: LoadEndpoint, tmp_path: Path) -> None:
    words = [tables.host, str(tables.port), tables.user, tables.dbname, str(tmp_path)]
    with subprocess.Popen([sys.executable, "-c", PROGRAM, *words], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        pid = int(program.stdout.readline())
        assert alive(pid)
        assert list(tmp_path.iterdir()) != []
        program.send_signal(signal.SIGKILL)
    assert eventually(lambda: not alive(pid))
    assert eventually(lambda: list(tmp_path.iterdir()) == [])
