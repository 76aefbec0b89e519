"""The clipboard of the operator's terminal (OSC 52). Copied text may be pasted into a shell or psql, so it is made
safe."""

from __future__ import annotations

from typing import Any

from textual.app import App

from pgtop_tune.base.safe_text import pasteable


def copy(app: App[Any], text: str, said: str) -> str:
    """Puts text into the clipboard, without what a terminal would obey or hide.

    Args:
        app: It has the terminal.
        text: Anything; foreign.
        said: What there is to say of it: "the query is in your terminal's clipboard".

    Returns:
        That, with the number of characters that were left out, if any were.
    """
    kept, left_out = pasteable(text)
    app.copy_to_clipboard(kept)
    if not left_out:
        return said
    return f"{said}, without {left_out} control character{'s' if left_out > 1 else ''}"
