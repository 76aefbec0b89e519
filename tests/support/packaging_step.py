"""Modules of packaging/, which are scripts: the directory has the name of a package that others install."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGING: Final = ROOT / "packaging"


def packaging_step(name: str) -> ModuleType:
    """Return a module of packaging/."""
    full_name = f"packaging_step_{name}"
    if full_name not in sys.modules:
        spec = spec_from_file_location(full_name, PACKAGING / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        sys.modules[full_name] = module
        with pytest.MonkeyPatch.context() as patch:
            # They import each other as a script does.
            patch.syspath_prepend(str(PACKAGING))
            spec.loader.exec_module(module)
    return sys.modules[full_name]
