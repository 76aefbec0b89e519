"""Script files of pgbench: read, hashed, and searched for commands that would start programs."""

from __future__ import annotations

import errno
import hashlib
import re
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.base.paths import content_of
from pgtop_tune.model.bench import LoadSpec, ScriptChoice

LONGEST_BYTES: Final = 1_000_000

_SHELL: Final = re.compile(r"\\(?:\s|\\\r?\n)*(?:set)?shell\b", re.IGNORECASE)
"""pgbench takes meta commands in any case, also behind SQL in a line, and folds `\\` and a line break to nothing.
Wherever the word stands, a comment included, it counts: better one refusal too many."""
_WEIGHT: Final = re.compile(r"\d{1,10}")


BUILTIN_STATEMENTS: Final = {"tpcb-like": 7, "select-only": 1, "simple-update": 5}
"""Of pgbench's own scripts, BEGIN and END among them."""
_TOKEN: Final = re.compile(
    r"""(?P<blank>\s+|--[^\n]*|/\*.*?\*/)
      | (?P<quoted>[eE]'(?:[^'\\]|''|\\.)*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
      | (?P<end>\\?;)
      | \\(?P<meta>\w+)(?:\\\r?\n|[^\n])*
      | (?P<other>\w+|.)""",
    re.DOTALL | re.VERBOSE,
)
"""What a script is made of, as pgbench's scanner has it (src/fe_utils/psqlscan.l, src/bin/pgbench/exprscan.l)."""


class ScriptText(Struct, frozen=True):
    """What a script file holds.

    Attributes:
        text: As it is run. Foreign text.
        sha256: Of the bytes, in hexadecimal.
        shell_line: Line of the first `\\shell` or `\\setshell`, from 1; None when there is none.
    """

    file: Path
    text: str
    sha256: str
    shell_line: int | None


_SCALE: Final = re.compile(r"(?<!:):scale\b")


def reads_scale(spec: LoadSpec) -> bool:
    """Return whether a script of the operator's reads :scale and nothing gives it.

    Raises:
        LoadProblem: As `read_script`.
    """
    given = any(name == "scale" for name, _ in spec.variables)
    return not given and any(_SCALE.search(read_script(Path(script.file)).text) for script in spec.scripts)


def read_script(file: Path) -> ScriptText:
    """Reads a script file.

    Raises:
        LoadProblem: It is not there, cannot be read, or holds more than a megabyte.
    """
    try:
        data = content_of(file, LONGEST_BYTES)
    except OSError as problem:
        hint = "check that it is a pgbench script" if problem.errno == errno.EFBIG else "check its name"
        raise LoadProblem(f"the script {file} cannot be read: {problem.strerror}", hint) from None
    text = data.decode("utf-8", "replace")
    found = _SHELL.search(text)
    line = None if found is None else text.count("\n", 0, found.start()) + 1
    return ScriptText(file=file, text=text, sha256=hashlib.sha256(data).hexdigest(), shell_line=line)


def statements_in(text: str) -> int | None:
    """How many statements a script sends in one transaction; None where it decides that itself (`\\if`)."""
    count, depth, pending = 0, 0, False
    for token in _TOKEN.finditer(text):
        if token["blank"]:
            continue
        if (token["meta"] or "").lower() in ("if", "elif"):
            return None
        depth = max(depth + {"(": 1, ")": -1}.get(token["other"] or "", 0), 0)
        if token["meta"] or (token["end"] and not depth):
            count, pending, depth = count + pending, False, 0
        else:
            pending = True
    return count + pending


def check_script(script: ScriptText, *, allow_shell: bool) -> None:
    r"""Refuses a script that would run programs with the operator's rights.

    Raises:
        LoadProblem: It has \shell or \setshell, and that was not allowed.
    """
    if script.shell_line is not None and not allow_shell:
        raise LoadProblem(
            f"{script.file}, line {script.shell_line}: \\shell and \\setshell run programs on this machine",
            "to allow this: --allow-shell, or allow_shell = true in your own profile",
        )


def parse_choice(text: str) -> ScriptChoice:
    """FILE or FILE@WEIGHT, as pgbench's -f has it.

    Raises:
        LoadProblem: No file, or a weight that is not a whole number.
    """
    file, at, weight = text.rpartition("@")
    if not at:
        file, weight = text, "1"
    if not file:
        raise LoadProblem(f"{text!r} does not name a script file", "write -f FILE or -f FILE@WEIGHT")
    if not _WEIGHT.fullmatch(weight):
        raise LoadProblem(f"{weight!r} is not a weight of a script", "a weight is a whole number: -f my.sql@3")
    return ScriptChoice(file, int(weight))
