"""Other accounts in tests: files given to them."""

from __future__ import annotations

import os
from pathlib import Path

from pgtop_tune.cluster.account import Account


def own(account: Account, path: Path) -> None:
    """Gives a file or directory to the account of a server; nothing changes where that is ours."""
    if account.uid is not None and account.gid is not None:
        os.chown(path, account.uid, account.gid)
