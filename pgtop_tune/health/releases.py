"""Which releases of PostgreSQL there are and for how long they get fixes, as of a day: data/releases.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from datetime import date
from functools import cache
from importlib.resources import files

from msgspec import Struct


class Release(Struct, frozen=True):
    """A major version.

    Attributes:
        newest_minor: 6 of 18.6.
        last_release: The day of its last fixes.
    """

    newest_minor: int
    last_release: date


class Releases(Struct, frozen=True):
    """What was known on a day.

    Attributes:
        as_of: That day.
        majors: By major version.
    """

    as_of: date
    majors: Mapping[int, Release]

    def of(self, major: int) -> Release | None:
        """A major version; None for one that was not known."""
        return self.majors.get(major)


@cache
def releases() -> Releases:
    """The file that is shipped. Source: postgresql.org, "Versioning Policy"."""
    text = files("pgtop_tune.health").joinpath("data", "releases.toml").read_text(encoding="utf-8")
    told = tomllib.loads(text)
    return Releases(told["as_of"], {int(major): Release(**row) for major, row in told["majors"].items()})
