"""TOML files of operators: every defect of a file raises one kind of problem."""

from __future__ import annotations

import codecs
import tomllib
from typing import Any


class NotToml(ValueError):
    """The text is not TOML; the words say where."""


def toml_source(data: bytes) -> str:
    """Return a file's text, without the byte order mark that some editors put before it.

    Raises:
        NotToml: It is not UTF-8, as TOML is.
    """
    try:
        return data.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError:
        raise NotToml("it is not UTF-8") from None


def tables_of(text: str) -> dict[str, Any]:
    """Return the tables and values of a text.

    Raises:
        NotToml: It is not TOML, its brackets are nested deeper than they can be read, or a number is too long.
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise NotToml("brackets are nested too deep") from None
    except ValueError as problem:
        # A number of more than 4,300 digits is a ValueError that is not TOMLDecodeError.
        raise NotToml(str(problem)) from None
