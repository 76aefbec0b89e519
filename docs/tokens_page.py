"""The page of tokens that are masked by their form, from the table of kinds."""

from __future__ import annotations

from docs.markdown import plain, table
from pgtop_tune.secret_tokens import TOKEN_KINDS


def tokens() -> str:
    """Every kind: of what, how it begins, how long it is."""
    rows = [
        (plain(kind.name), " ".join(f"`{begin}`" for begin in kind.begins), str(kind.least)) for kind in TOKEN_KINDS
    ]
    return "\n".join(
        [
            "# Tokens that their form gives away\n",
            "In statements, log lines, parameters and events these become `********` behind their beginning, with no\n"
            "word beside them. A token has an upper-case letter or a digit, and so many characters behind its\n"
            "beginning at least; half of them where the text was cut off within it.\n",
            table(("of", "begins with", "characters"), rows),
        ]
    )
