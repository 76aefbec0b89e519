"""Tests whose program is started in two ways: as in all other tests, and from the one file."""

from __future__ import annotations

import sys
import zlib
from datetime import date
from pathlib import Path

import pytest

from tests.cli import runs
from tests.support import one_file

_TURNS = 3


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Of tests with the mark a third a day is run from the one file, too, and all of them with the long tests."""
    if metafunc.definition.get_closest_marker("also_from_one_file"):
        name = metafunc.definition.nodeid.rpartition("/")[2]
        is_turn = zlib.crc32(name.encode()) % _TURNS == date.today().toordinal() % _TURNS
        marks = () if is_turn else (pytest.mark.long,)
        ways = ["installed", pytest.param("one file", marks=marks)]
        metafunc.parametrize("started_from", ways, indirect=True)


@pytest.fixture
def started_from(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """How the program of a test is started."""
    if request.param == "one file":
        file = one_file.made_once(tmp_path_factory)
        before, now = runs.PROGRAM, one_file.words(file, Path(file.parent, "cache"))
        for module in list(sys.modules.values()):
            if getattr(module, "PROGRAM", None) is before:
                monkeypatch.setattr(module, "PROGRAM", now)
    return str(request.param)
