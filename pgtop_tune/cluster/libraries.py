"""Finds libraries as a server does, for majors whose programs cannot be asked whether they find them.

Source: dfmgr.c (expand_dynamic_library_name, find_in_dynamic_libpath).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

_MACRO: Final = "$libdir"
_SUFFIXES: Final = ("", ".so")


def missing(names: Sequence[str], search_path: str, library_directory: str, data_directory: Path) -> tuple[str, ...]:
    """Those of some libraries that no file is there for.

    Args:
        names: As in shared_preload_libraries.
        search_path: dynamic_library_path.
        library_directory: What $libdir stands for.
        data_directory: Where the server runs.

    Raises:
        OSError: We may not look.
    """
    return tuple(
        name
        for name in names
        if not any(path.is_file() for path in _places(name, search_path, library_directory, data_directory))
    )


def _places(name: str, search_path: str, library_directory: str, data_directory: Path) -> Iterator[Path]:
    directories = [""] if "/" in name else [f"{each}/" for each in search_path.split(":") if each]
    for suffix in _SUFFIXES:
        for directory in directories:
            yield Path(f"{directory}{name}{suffix}".replace(_MACRO, library_directory, 1))
    if name:
        yield data_directory / name
