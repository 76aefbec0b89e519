"""What a test asks of the account that runs it."""

from __future__ import annotations

import os

import pytest


def require_root() -> None:
    """Fails a test that needs root and has no mark `root`: with the mark, another account has skipped it by now."""
    if os.geteuid() != 0:
        pytest.fail("this needs root: give the test the mark `root`")
