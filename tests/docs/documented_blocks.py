"""The shell blocks of README and guide, and how each is run on a throwaway server.

A comment before a block says what differs from the text when it is run:

    <!-- run: -T 600 -> -T 2; go-live -> today -->      pieces of the block, and what stands there instead
    <!-- before: pgtop-tune record -o a.jsonl -->       commands that come first
    <!-- long: an A/B takes two minutes at least -->     run by the long tests only
    <!-- pooler: 6432 8432 -->                          ports at which a PgBouncer answers, in front of the server
    <!-- not run: it needs a second machine -->
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md")))
PROGRAM: Final = re.compile(r"(?<![\w./~-])pgtop-tune(?= )")
_COMMENT: Final = re.compile(r"^ *<!-- (?P<kind>run|before|long|pooler|not run): (?P<words>.*?) -->$", re.M | re.S)
_BLOCK: Final = re.compile(
    r"(?P<comments>(?:^ *<!-- (?:run|before|long|pooler|not run): (?:(?!-->).)*-->\n)*)^ *```sh\n(?P<body>.*?)^ *```",
    re.M | re.S,
)


@dataclass(frozen=True, slots=True)
class Block:
    """One shell block.

    Attributes:
        page: File that has it.
        body: As the reader sees it.
        script: As it is run.
        is_long: Only the long tests run it.
        pooler_ports: Ports in the script at which a pooler answers.
        not_run: Why it is not run; "" for a block that is.
    """

    page: Path
    body: str
    script: str
    is_long: bool
    pooler_ports: tuple[str, ...]
    not_run: str


def blocks(page: Path) -> Iterator[Block]:
    """Read the shell blocks of a page that call the program.

    Raises:
        ValueError: A comment replaces a piece that its block does not have.
    """
    for match in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        body = dedent(match["body"])
        if not PROGRAM.search(body):
            continue
        script, first, is_long, not_run = body, "", False, ""
        ports: tuple[str, ...] = ()
        for comment in _COMMENT.finditer(match["comments"]):
            if comment["kind"] == "not run":
                not_run = comment["words"]
            elif comment["kind"] == "long":
                is_long = True
            elif comment["kind"] == "pooler":
                ports = tuple(comment["words"].split())
            elif comment["kind"] == "before":
                first += comment["words"] + "\n"
            else:
                for pair in re.split(r";\s+", comment["words"]):
                    piece, arrow, instead = pair.partition(" -> ")
                    if not arrow or piece not in script:
                        raise ValueError(f"{page.name}: no {piece!r} in\n{script}")
                    script = script.replace(piece, instead)
        yield Block(page=page, body=body, script=first + script, is_long=is_long, pooler_ports=ports, not_run=not_run)
