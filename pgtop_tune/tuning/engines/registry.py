"""Engines by name; another one is one file and one row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.tuning.engines.bayes import bayes
from pgtop_tune.tuning.engines.climb import climb
from pgtop_tune.tuning.search import Engine

BY_NAME: Final[Mapping[str, Callable[[], Engine]]] = MappingProxyType({"climb": lambda: climb, "bayes": bayes})


def engine(name: str) -> Engine:
    """Ready to be run.

    Raises:
        UsageProblem: There is none of this name, or its optional packages are missing.
    """
    if name not in BY_NAME:
        raise UsageProblem(f"there is no engine {name}", f"one of: {', '.join(BY_NAME)}")
    return BY_NAME[name]()
