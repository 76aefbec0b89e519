"""Whether what a journal says of starting a server is what we would have found ourselves: it is run, perhaps by root.

Source: `managing`, whose argument lists these are.
"""

from __future__ import annotations

import itertools
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pgtop_tune.cluster.postmaster import BELONGS
from pgtop_tune.errors import ClusterProblem
from pgtop_tune.model.server_place import ServerPlace

_VERBS: Final = ("restart", "start")
_UNIT: Final = re.compile(r"[^-/\s][^/\s]*\.service")
_MAJOR: Final = re.compile(r"\d+(\.\d+)?")
_CLUSTER: Final = re.compile(r"[^-/\s][^/\s]*")
_WRITTEN_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


def check_recorded(place: ServerPlace) -> None:
    """Makes sure that a recorded place is one: its data directory its user's, its commands those of `managing`.

    Raises:
        ClusterProblem: It is not; nothing was run.
    """
    try:
        owner = Path(place.data_directory).stat()
        sound = owner.st_uid != 0 and place.uid in (None, owner.st_uid) and all(map(_belongs, place.environment))
        sound = sound and all(_is_ours(argv, place, owner.st_uid) for argv in (place.restart, place.start) if argv)
    except PermissionError:
        raise
    except OSError as error:
        raise ClusterProblem(f"the server is down, and {place.data_directory}: {error.strerror}") from None
    if not sound:
        raise ClusterProblem(
            f"the server is down, and {place.data_directory} differs from its record in the journal",
            "start the server yourself, then revert again",
        )


def _belongs(pair: tuple[str, str]) -> bool:
    return BELONGS.fullmatch(pair[0]) is not None


def _is_ours(argv: Sequence[str], place: ServerPlace, owner: int) -> bool:
    program, words = argv[0], list(argv[1:])
    if program == "systemctl":
        words = words[1:] if words[:1] == ["--user"] else words
        return len(words) == 2 and words[0] in _VERBS and _UNIT.fullmatch(words[1]) is not None
    if program == "pg_ctlcluster":
        names = len(words) >= 3 and _MAJOR.fullmatch(words[0]) and _CLUSTER.fullmatch(words[1])
        return bool(names) and words[2] in _VERBS and words[3:] in ([], ["-m", "fast"])
    of_server = place.as_owner and place.uid == owner and words[:1] in ([_VERBS[0]], [_VERBS[1]])
    in_directory = any(pair == ("-D", place.data_directory) for pair in itertools.pairwise(words))
    return of_server and in_directory and _is_program(Path(program), owner)


def _is_program(path: Path, owner: int) -> bool:
    """pg_ctl of root or of the server's user, where nobody else could have put it."""
    if path.name != "pg_ctl" or not path.is_absolute():
        return False
    real = path.resolve(strict=True)
    found, holding = real.stat(), real.parent.stat()
    return stat.S_ISREG(found.st_mode) and all(
        each.st_uid in (0, owner, os.geteuid()) and not each.st_mode & _WRITTEN_BY_OTHERS for each in (found, holding)
    )
