"""The trees that the packages hold, made once a run."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from tests.support.packaging_step import ROOT, packaging_step


@cache
def tree_of(architecture: str) -> Path:
    """Return the tree of an architecture; wheels are kept in build/ for the next run."""
    directory = Path(tempfile.mkdtemp(prefix=f"tree-{architecture}-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    packaging_step("tree").make(architecture, directory / "tree", ROOT / "build" / "wheels")
    return directory / "tree"
