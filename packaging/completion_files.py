"""Writes the completion files of bash, zsh and fish, which ask the program.

    python packaging/completion_files.py DIRECTORY

Nothing in them names a command or an option: a newer program completes its own.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
FILE_NAMES: Final = {"bash": "pgtop-tune", "zsh": "_pgtop-tune", "fish": "pgtop-tune.fish"}
"""Shell → name under which it loads the file by itself."""
_REGISTERED: Final = "\ncompdef _pgtop_tune_completion pgtop-tune"
_CALLED_OR_REGISTERED: Final = """
# zsh runs this file as the function that completes, the first time; sourced by hand, it registers the function.
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _pgtop_tune_completion "$@"
else
  compdef _pgtop_tune_completion pgtop-tune
fi"""


def texts() -> Mapping[str, str]:
    """Return the file name and the text for every shell."""
    return {name: _text(shell) for shell, name in FILE_NAMES.items()}


def _text(shell: str) -> str:
    words = [sys.executable, "-P", "-m", "pgtop_tune", "--show-completion", shell]
    text = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True, encoding="utf-8").stdout
    if shell == "zsh":
        assert _REGISTERED in text, "typer's file for zsh has changed"
        text = text.replace(_REGISTERED, _CALLED_OR_REGISTERED)
    return text.strip("\n") + "\n"


def main() -> None:
    """Writes the files into the directory named."""
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in texts().items():
        (directory / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
