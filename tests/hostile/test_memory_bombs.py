"""Recordings that were made to fill the memory of their reader."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from pgtop_tune.recording.format import header_line
from tests.support.recordings import HEADER

BOMBS: dict[str, tuple[bytes, bytes, int]] = {
    "lines": (b"", b"\n", 10_000_000),
    "one-line": (b"", b" ", 1_000_000_000),
    "keys": (b"", b'{"key":\n', 1_000_000),
    "deltas": (b"", b'{"delta":{}}\n', 1_000_000),
    "objects": (b'{"key":[', b"{},", 5_000_000),
    "nesting": (b'{"key":', b"[", 15_000_000),
}
"""How it begins, what is repeated, and how often."""
READ = """
import resource, sys
from pathlib import Path
from pgtop_tune.base.errors import RecordingProblem
from pgtop_tune.recording.reader import RecordingReader
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]),) * 2)
try:
    reader = RecordingReader(Path(sys.argv[1]))
except RecordingProblem as refused:
    print(refused.message)
else:
    for index, frame in reader.frames():
        pass
    reader.index_at(reader.length_s)
    print(*reader.problems, sep="\\n")
print("peak", *(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.long
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("bomb", BOMBS)
def test_files_made_to_fill_the_memory_do_not(tmp_path: Path, bomb: str, packed: bool) -> None:
    path = tmp_path / "bomb"
    begin, part, times = BOMBS[bomb]
    chunk = part * (times // 100)
    with gzip.open(path, "wb", compresslevel=1) if packed else path.open("wb") as file:
        file.write(f"{header_line(HEADER)}\n".encode() + begin)
        for _ in range(100):
            file.write(chunk)
    ran = subprocess.run([sys.executable, "-c", READ, str(path), str(3 << 30)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout.split()[-1]) * 1024 < 700e6
    assert ran.stdout.count("\n") > 1
