"""Accounts in tests: what a test asks of the one that runs it, files given to another, the home of a program."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pgtop_tune.cluster.throwaway import Account


def require_root() -> None:
    """Fails a test that needs root and has no mark `root`: with the mark, another account has skipped it by now."""
    if os.geteuid() != 0:
        pytest.fail("this needs root: give the test the mark `root`")


def own(account: Account, path: Path) -> None:
    """Gives a file or directory to the account of a server; nothing changes where that is ours."""
    if account.uid is not None and account.gid is not None:
        os.chown(path, account.uid, account.gid)


def home_variables(home: Path) -> dict[str, str]:
    """HOME and what lies in it: for root, too, who follows the user database rather than HOME."""
    below = {"XDG_CONFIG_HOME": ".config", "XDG_STATE_HOME": ".local/state", "XDG_DATA_HOME": ".local/share"}
    return {"HOME": str(home), **{name: str(home / path) for name, path in below.items()}}
