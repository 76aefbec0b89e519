"""Our own cost, against the process's own clocks."""

from __future__ import annotations

import os
import time

import psutil
import pytest

from pgtop_tune.host.process_files import OwnCostMeter


def test_cpu_seconds_and_resident_memory() -> None:
    meter = OwnCostMeter()
    before = meter.read()
    began = time.process_time()
    while time.process_time() - began < 0.05:
        pass
    ballast = bytearray(os.urandom(1 << 20) * 32)
    after = meter.read()
    spent_s = time.process_time() - began
    assert 0.05 <= after.cpu_s - before.cpu_s <= spent_s + 0.01
    assert after.rss_bytes - before.rss_bytes > 24 << 20
    assert after.rss_bytes == pytest.approx(psutil.Process().memory_info().rss, rel=0.05)
    assert len(ballast) == 32 << 20
    meter.close()
