"""A machine made up in a directory of the test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.host.made_machine import Machine


@pytest.fixture
def made(tmp_path: Path) -> Machine:
    """One as most are, nothing changed yet."""
    return Machine(tmp_path)
