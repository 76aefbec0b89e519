"""psutil's places are looked at by the child that may hang, never by us."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pgtop_tune.host import psutil_source
from pgtop_tune.process.path_looks import LOOKS


def test_the_mount_point_is_that_of_the_system(tmp_path: Path) -> None:
    point = tmp_path
    while not os.path.ismount(point):
        point = point.parent
    (tmp_path / "link").symlink_to(tmp_path)
    assert psutil_source._mount_point(f"{tmp_path}/link") == str(point)
    assert psutil_source._mount_point("/") == "/"


def test_no_path_of_a_server_is_looked_at_by_us(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(type(LOOKS), "stat", hang)
    for name in ("realpath", "ismount", "islink", "exists"):
        monkeypatch.setattr(os.path, name, hang)
    assert psutil_source._mount_point("/no/such/place") == "/no/such/place"
    assert psutil_source._device("server:/export") == "server:/export"
