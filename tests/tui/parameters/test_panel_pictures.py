"""The list of parameters and its details as pictures: narrow, roomy, wide; nothing wraps, nothing foreign gets out."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.advice.facts import Advice, Opinion
from pgtop_tune.advice.knobs import system
from pgtop_tune.advice.knobs.catalogue import BY_NAME
from pgtop_tune.changes.model.change import ChangeState, ParameterChange
from pgtop_tune.model.machine import AfterReboot, Assignment, SystemSetting
from pgtop_tune.tui.parameters.drawing import list_lines, parameter_lines, word_lines
from pgtop_tune.tui.parameters.rows import SettingRow, SettingTable, of_machine
from pgtop_tune.tui.widgets.lines import ASCII, UNICODE, Line, plain_text, width
from tests.support.pictures import assert_picture
from tests.support.screens import parameter

GOLDENS = Path(__file__).parents[1] / "goldens"
CELLS = (76, 116, 164)
HOSTILE = "ann\x1b[31m@db1, [red] 77"


def rows() -> list[SettingRow]:
    commit = parameter(
        "synchronous_commit", "on", "on", vartype="enum", context="user",
        enumvals=("local", "remote_write", "remote_apply", "on", "off"),
    )  # fmt: skip
    wal = parameter("max_wal_size", "1024", "1GB", unit="MB", min_val="2", max_val="2147483647")
    waits = parameter("shared_buffers", "16384", "128MB", unit="8kB", context="postmaster", pending_restart=True)
    fsync = parameter("fsync", "off", "off", vartype="bool", boot_val="on")
    long_name = "autovacuum_vacuum_insert_scale_factor"
    scale = parameter(long_name, "0.2", "0.2", vartype="real", min_val="0", max_val="100")
    change = ParameterChange(
        "c1", 0, "max_wal_size", "1GB", "64MB", None, "default", ChangeState.APPLIED, "1GB", by=HOSTILE,
        reason="fewer\ncheckpoints", kept=False,
    )  # fmt: skip
    advice = Advice("16GB", "82 MB/s of WAL make 15.3 GB.", "1GB", "32GB", (Opinion("pgtune", "8GB"),))
    pages = SystemSetting(
        "vm.nr_hugepages", "/proc/sys/vm/nr_hugepages", "0",
        after_reboot=AfterReboot((Assignment("12\x1b", "/etc/sysctl.d/9.conf", 3),), ("tuned",)),
    )  # fmt: skip
    return [
        SettingRow(wal, BY_NAME["max_wal_size"], advice, change=change),
        SettingRow(fsync, BY_NAME["fsync"]),
        SettingRow(commit, BY_NAME["synchronous_commit"]),
        SettingRow(waits, BY_NAME["shared_buffers"], replace(advice, value="4GB")),
        SettingRow(scale, BY_NAME[long_name], next_load="0.1"),
        SettingRow(of_machine(pages), system.BY_NAME["vm.nr_hugepages"], replace(advice, value="2130"), setting=pages),
    ]


def picture(cells: int, ascii_only: bool = False) -> list[Line]:
    glyphs = ASCII if ascii_only else UNICODE
    table = SettingTable()
    table.load(rows())
    table.step(1)
    table.move(2)
    table.step(-1)
    drawn = [*list_lines(table, cells, 20, glyphs), (), *word_lines(table.selected, cells, glyphs, 8)]
    for row in (table.rows[0], table.rows[5]):
        drawn += [(), *parameter_lines(row, cells, glyphs)]
    return drawn


@pytest.mark.parametrize("cells", CELLS)
def test_the_list_and_the_details_are_as_in_the_picture(cells: int) -> None:

    assert_picture(GOLDENS / f"parameters-{cells}.txt", [plain_text(line) for line in picture(cells)])


@pytest.mark.parametrize("cells", [56, *CELLS])
def test_every_line_fits(cells: int) -> None:
    assert all(width(line) <= cells for line in picture(cells))


def test_foreign_text_and_an_ascii_terminal_stay_what_they_are() -> None:
    drawn = "\n".join(plain_text(line) for line in picture(116))
    assert "\x1b" not in drawn
    assert "ann" in drawn
    table = SettingTable()
    table.load(rows())
    names = "".join(plain_text(line) for line in list_lines(table, 76, 20, ASCII))
    assert "─" not in names
