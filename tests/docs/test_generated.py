"""The documentation says what the program does: generated pages, links, command lines, the format's own example."""

from __future__ import annotations

import re
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from docs.generate import PAGES, REFERENCE, page
from pgtop_tune.cli.app import program
from pgtop_tune.cli.habits import with_default_command
from pgtop_tune.model.frame import Frame
from pgtop_tune.recording.codec import codec_for
from pgtop_tune.recording.format import FORMAT, KEY_EVERY
from tests.support.frames import frame
from tests.support.recordings import write

ROOT = Path(__file__).resolve().parents[2]
WRITTEN = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^ *```(?P<language>\w*)\n(?P<body>.*?)^ *```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")
INLINE = re.compile(r"`(pgtop-tune[^`\n]*)`")
BY_HAND = ("other-checks.md",)
"""Pages of the reference that no table of the program could make."""
HEADING = re.compile(r"^#+ (?P<words>.+)$", re.MULTILINE)


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("name", PAGES)
def test_a_committed_page_is_what_the_generator_writes(name: str) -> None:
    assert (REFERENCE / name).read_text(encoding="utf-8") == page(name), "run `make docs`"


def test_no_page_of_the_reference_is_left_over() -> None:
    assert {path.name for path in REFERENCE.glob("*.md")} == {*PAGES, *BY_HAND}


def _anchors(path: Path) -> set[str]:
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", each["words"].lower()).replace(" ", "-") for each in HEADING.finditer(text)}


@pytest.mark.parametrize("path", WRITTEN, ids=_name)
def test_relative_links_lead_somewhere(path: Path) -> None:
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    for found in LINK.finditer(text):
        target, _, anchor = found["target"].partition("#")
        if "://" in target:
            continue
        file = (path.parent / target).resolve() if target else path
        assert file.exists(), f"{found[0]} leads nowhere"
        assert file.is_relative_to(ROOT), f"{found[0]} leads out of the repository"
        assert not anchor or anchor in _anchors(file), f"{found[0]}: no such heading"


def _command_lines(path: Path) -> Iterator[str]:
    """Everything in a page that a reader may type and that begins with the program's name."""
    text = path.read_text(encoding="utf-8")
    for block in FENCE.finditer(text):
        if block["language"] == "sh":
            for line in block["body"].splitlines():
                for part in line.split(" | "):
                    found = re.search(r"(?:^|\s)(pgtop-tune(?: [^#]*)?)(?:#|$)", part)
                    if found and not line.startswith("#"):
                        yield found[1].strip()
    for inline in INLINE.finditer(FENCE.sub("", text)):
        yield inline[1]


NO_COMMANDS = ("…", FORMAT)
"""In words that begin with the program's name: something left out, the name of the recording's format."""
COMMAND_LINES = sorted(
    {
        (_name(path), line)
        for path in WRITTEN
        for line in _command_lines(path)
        if not any(words in line for words in NO_COMMANDS)
    }
)


def test_the_pages_show_command_lines() -> None:
    shown = {with_default_command(shlex.split(line)[1:])[0] for _, line in COMMAND_LINES}
    assert {"top", "demo", "record", "replay", "revert"} <= shown


@pytest.fixture(scope="module")
def group() -> Any:
    """The commands; they are made once, which takes longer than to parse a line."""
    return typer.main.get_command(program())


@pytest.mark.parametrize(("where", "line"), COMMAND_LINES)
def test_a_command_line_shown_is_one_that_parses(where: str, line: str, group: Any) -> None:
    name, *arguments = with_default_command(shlex.split(line)[1:])
    if name.startswith("--"):
        assert name == "--help" or any(name in option.opts for option in group.params)
        return
    command = group.commands[name]
    while getattr(command, "commands", None) and arguments:
        name, *arguments = arguments
        command = command.commands[name]
    command.make_context(name, arguments, resilient_parsing=False)


def test_the_python_of_the_format_page_rebuilds_what_was_recorded(tmp_path: Path) -> None:
    text = (REFERENCE / "recording-format.md").read_text(encoding="utf-8")
    source = next(block["body"] for block in FENCE.finditer(text) if block["language"] == "python")
    names: dict[str, Any] = {}
    exec(source, names)
    codec = codec_for(Frame)
    made = [frame(second) for second in range(KEY_EVERY + 20)]
    for suffix in ("", ".gz"):
        path = write(tmp_path / f"run.jsonl{suffix}", made)
        rebuilt = list(names["frames"](path))
        assert [codec.read(each) for each in rebuilt] == made


def test_pages_name_no_place_of_one_machine() -> None:
    here = {ROOT, ROOT.parent, Path.home(), Path(tempfile.gettempdir())} - {Path("/")}
    places = re.compile("|".join([*(rf"{re.escape(str(place))}\b" for place in here), "/(?:home|Users|tmp)/"]))
    for path in [*WRITTEN, ROOT / "docs" / "images" / "dashboard.svg"]:
        found = places.search(path.read_text(encoding="utf-8").replace("/var/tmp/", ""))
        assert not found, f"{path}: {found[0]}"
