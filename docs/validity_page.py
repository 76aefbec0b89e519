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
            "The doubts that `bench run` reports about a run. *Invalid*: the figures do not count.\n"
            "*Suspect*: they may\n"
            "not answer the question. *Note*: consider it when you compare results. A rule without its\n"
            "input (a server\n"
            "on another machine, a recording of an older version) reports nothing.\n",
            table(("doubt", "what it means", "read from"), rows),
        ]
    )
