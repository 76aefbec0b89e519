"""A machine made up in a directory of the test."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgtop_tune.host.local import LocalHost
from tests.host.made_machine import Machine


@pytest.fixture
def made(tmp_path: Path) -> Machine:
    """One as most are, nothing changed yet."""
    return Machine(tmp_path)


@pytest.fixture
def host() -> Iterator[LocalHost]:
    """This machine, as the sampler has it."""
    found = LocalHost(time.monotonic)
    yield found
    found.close()
