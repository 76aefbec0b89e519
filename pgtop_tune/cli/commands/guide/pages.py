"""The pages of the guide, which the program has with it."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.paths import shipped_directory
from pgtop_tune.cli.commands.guide import HelpRequest
from pgtop_tune.cli.output import say

_LIST: Final = "guide"
_COLUMNS: Final = 100
_PICTURE: Final = re.compile(r"^!\[.*\n", re.MULTILINE)


def pages() -> Mapping[str, Path]:
    """Return the pages of the guide by name."""
    directory = shipped_directory("guide", "docs/guide")
    return {path.stem: path for path in sorted(directory.glob("*.md"))}


def say_page(request: HelpRequest) -> None:
    """Show a page, or the list of all pages. Raises UsageProblem for another word, with the near names."""
    topic, texts = request.topic[0], pages()
    if topic == _LIST:
        for name, path in texts.items():
            say(f"{name:<16} {_title(path)}")
    elif topic in texts:
        _show(texts[topic].read_text(encoding="utf-8"))
    else:
        near = difflib.get_close_matches(topic.lower(), texts, n=3, cutoff=0.6)
        raise UsageProblem(
            f"there is no command and no page of the guide called {topic!r}",
            f"did you mean the page {' or '.join(near)}?"
            if near
            else "`pgtop-tune help` lists the commands, `pgtop-tune help guide` the pages",
        )


def _title(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return file.readline().lstrip("# ").strip()


def _show(text: str) -> None:
    from rich.console import Console
    from rich.markdown import Markdown

    page = Markdown(_PICTURE.sub("", text), hyperlinks=False)
    if sys.stdin.isatty() and sys.stdout.isatty():
        # As git does: colours, and a page that fits the screen stays on it.
        os.environ.setdefault("LESS", "FRX")
        console = Console()
        with console.pager(styles=True):
            console.print(page, width=min(console.width, _COLUMNS))
    else:
        Console(color_system=None, width=_COLUMNS).print(page)
