"""Parameters that a session begins with: the keyword `options` of libpq, or PGOPTIONS.

Source: pg_split_opts (postinit.c), process_postgres_switches (postgres.c); the last word on a parameter counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_SPLITS: Final = re.compile(r"[\\\s]")
_HELD: Final = r"\\\g<0>"


def with_settings(options: str, settings: Mapping[str, str]) -> str:
    """Return the options with parameters behind those they have; blanks and backslashes are hindered from splitting
    them."""
    options_of_settings = [f"-c {_SPLITS.sub(_HELD, f'{name}={value}')}" for name, value in settings.items()]
    return " ".join(filter(None, (options, *options_of_settings)))
