"""The page of tokens that are masked by their form, from the table of kinds."""

from __future__ import annotations

from docs.markdown import plain, table
from pgtop_tune.base.secret import TOKEN_KINDS


def tokens() -> str:
    """Every kind: of what, how it begins, how long it is."""
    rows = [
        (plain(kind.name), " ".join(f"`{begin}`" for begin in kind.begins), str(kind.least)) for kind in TOKEN_KINDS
    ]
    return "\n".join(
        [
            "# Tokens recognised by their form\n",
            "In statements, log lines, parameters and events, the part after the prefix of these tokens becomes\n"
            "`********`, even without a keyword beside it. A token contains an upper-case letter or a digit, and\n"
            "has at least this number of characters after its prefix, or half of it if the text was\n"
            "cut within the token.\n",
            table(("token", "begins with", "characters"), rows),
        ]
    )
