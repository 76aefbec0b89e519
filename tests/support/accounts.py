"""Accounts in tests: files given to another one, and the home of a program that is run."""

from __future__ import annotations

import os
from pathlib import Path

from pgtop_tune.cluster.account import Account


def own(account: Account, path: Path) -> None:
    """Gives a file or directory to the account of a server; nothing changes where that is ours."""
    if account.uid is not None and account.gid is not None:
        os.chown(path, account.uid, account.gid)


def home_variables(home: Path) -> dict[str, str]:
    """HOME and what lies in it: for root, too, who follows the user database rather than HOME."""
    below = {"XDG_CONFIG_HOME": ".config", "XDG_STATE_HOME": ".local/state", "XDG_DATA_HOME": ".local/share"}
    return {"HOME": str(home), **{name: str(home / path) for name, path in below.items()}}
