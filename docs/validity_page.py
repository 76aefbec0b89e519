"""The page of everything that speaks against a result, from the table of rules."""

from __future__ import annotations

from docs.markdown import plain, table
from pgtop_tune.metrics.run_validity import RULES


def validity() -> str:
    """Every rule: what its doubt means and what it is read from."""
    rows = [(f"`{rule.id}`", plain(rule.says), plain(rule.source)) for rule in RULES]
    return "\n".join(
        [
            "# Doubts about a result\n",
            "What `bench run` may say of a run. *Invalid*: the figures do not count. *Suspect*: they may say\n"
            "something else than what was asked. *Note*: to be known when results are compared. A rule that misses\n"
            "what it needs (a server elsewhere, a recording of an older version) says nothing.\n",
            table(("doubt", "what it means", "read from"), rows),
        ]
    )
