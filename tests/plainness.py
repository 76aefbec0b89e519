"""Counts what docs/conventions.md asks of names and docstrings, and the size, and holds them against their ceilings.

python tests/plainness.py             (make check: fails where a count is above its ceiling in pyproject.toml)
python tests/plainness.py --places    (where each is)
python tests/plainness.py --since REV (those on lines added since a revision)
python tests/plainness.py --lower     (writes the counts as new ceilings, where they are lower)
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).resolve().parents[1] / "pyproject.toml"
PACKAGE: Final = PROJECT.parent / "pgtop_tune"
TABLE: Final = "tool.pgtop-tune.ceilings"
EMPTY_NAMES: Final = frozenset(
    re.findall(
        r"\w+",
        "found each words place said why wanted seen told come came way made given asked known held shown taken left"
        " over gone rest much many whole own other others these those both mine ours theirs thing things what who",
    )
)
"""Names of variables and arguments that do not tell what they hold."""
FRAGMENT: Final = re.compile(
    r"(what|whether|how|who|whoever|whose|that|where|when|why|which|somebody|nobody|it|its|they|them|their|of|as far"
    r"|however|with its|in it|for it|the same)\b",
    re.IGNORECASE,
)
"""How docstrings begin that are neither a sentence with a verb nor the noun that they describe."""
_NO_TOKENS: Final = frozenset(
    (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)
) | {tokenize.ENDMARKER}
_DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Counts:
    """What was counted in a package.

    Attributes:
        files, tokens: Of all modules; tokens without comments and layout.
        places: "path:line: what" by the name of a ceiling.
    """

    def __init__(self) -> None:
        self.files = 0
        self.tokens = 0
        self.places: dict[str, list[str]] = defaultdict(list)
        self._classes: dict[str, list[str]] = defaultdict(list)
        self._functions: dict[str, list[str]] = defaultdict(list)

    def count(self, path: str, source: str, counts_line: Callable[[int], bool]) -> None:
        """Add a module; of names and docstrings those on lines that count."""
        self.files += 1
        self.tokens += sum(
            token.type not in _NO_TOKENS for token in tokenize.generate_tokens(io.StringIO(source).readline)
        )
        tree = ast.parse(source)
        for node in ast.walk(tree):
            for line, name in _bound_names(node):
                if name in EMPTY_NAMES and counts_line(line):
                    self.places["empty-names"].append(f"{path}:{line}: {name}")
            if isinstance(node, ast.ClassDef):
                self._classes[node.name].append(f"{path}:{node.lineno}")
            if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
                line = node.body[0].lineno
                if FRAGMENT.match(text.strip()) and counts_line(line):
                    self.places["fragments"].append(f"{path}:{line}: {text.strip().splitlines()[0]}")
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
                self._functions[node.name].append(f"{path}:{node.lineno}")

    def totals(self) -> dict[str, int]:
        """Return the counts by the names of the ceilings; `places` has double names from then on."""
        doubled = {name: where for name, where in self._classes.items() if len(where) > 1}
        shared = {name: where for name, where in self._functions.items() if len(where) > 2}
        self.places["double-class-names"] = [f"{name}: {', '.join(where)}" for name, where in sorted(doubled.items())]
        self.places["shared-function-names"] = [f"{name}: {', '.join(where)}" for name, where in sorted(shared.items())]
        return {
            "files": self.files,
            "tokens": self.tokens,
            "empty-names": len(self.places["empty-names"]),
            "fragments": len(self.places["fragments"]),
            "double-class-names": len(doubled),
            "shared-function-names": len(shared),
        }


def _bound_names(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Lines and names of the variables and arguments that a node binds."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.lineno, node.id
    elif isinstance(node, ast.arg):
        yield node.lineno, node.arg


def counted(package: Path, added: Mapping[str, set[int]] | None = None) -> Counts:
    """Return the counts of a package; of names and docstrings those on added lines alone where these are given."""
    counts = Counts()
    for path in sorted(package.rglob("*.py")):
        name = str(path.relative_to(package.parent))
        lines = None if added is None else added.get(name, set())
        counts.count(name, path.read_text(encoding="utf-8"), lambda line, lines=lines: lines is None or line in lines)
    return counts


def added_lines(revision: str) -> dict[str, set[int]]:
    """Return the numbers of the lines that were added since a revision, by path."""
    words = ("git", "diff", "-U0", revision, "--", PACKAGE.name)
    diff = subprocess.run(words, cwd=PACKAGE.parent, capture_output=True, text=True, check=True).stdout
    added: dict[str, set[int]] = defaultdict(set)
    path = ""
    for line in diff.splitlines():
        if line.startswith("+++ b/"):
            path = line[6:]
        elif hunk := re.match(r"@@ \S+ \+(\d+)(?:,(\d+))? @@", line):
            first = int(hunk[1])
            added[path].update(range(first, first + int(hunk[2] or 1)))
    return added


def ceilings() -> dict[str, int]:
    """Return the ceilings of pyproject.toml by name."""
    table: dict[str, int] = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["tool"]["pgtop-tune"]["ceilings"]
    return table


def lower(totals: Mapping[str, int]) -> None:
    """Write counts that are below their ceilings as the new ceilings."""
    head, mark, rest = PROJECT.read_text(encoding="utf-8").partition(f"[{TABLE}]\n")
    for name, most in ceilings().items():
        rest = re.sub(rf"(?m)^({name} = )\d+", rf"\g<1>{min(totals[name], most)}", rest, count=1)
    PROJECT.write_text(head + mark + rest, encoding="utf-8")


def main() -> int:
    """Count, print, and return 1 where a count is above its ceiling."""
    parser = argparse.ArgumentParser(description="What docs/conventions.md asks of names, docstrings and size.")
    parser.add_argument("--places", action="store_true", help="print where each is")
    parser.add_argument("--since", metavar="REV", help="only names and docstrings on lines added since a revision")
    parser.add_argument("--lower", action="store_true", help="lower the ceilings to the counts")
    chosen = parser.parse_args()
    counts = counted(PACKAGE, None if chosen.since is None else added_lines(chosen.since))
    totals = counts.totals()
    if chosen.places or chosen.since:
        for kind in ("empty-names", "fragments") if chosen.since else counts.places:
            print(*counts.places[kind], sep="\n")
    if chosen.lower:
        lower(totals)
    limits = ceilings()
    print("; ".join(f"{name} {total:,} (at most {limits[name]:,})" for name, total in totals.items()))
    above = [name for name, total in totals.items() if total > limits[name]]
    for name in above:
        print(f"{name}: {totals[name]:,} is above the ceiling of {limits[name]:,} in pyproject.toml", file=sys.stderr)
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
