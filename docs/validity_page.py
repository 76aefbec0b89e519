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
            "*Suspect*: the figures may not answer the question. *Note*: consider the doubt when you compare\n"
            "results. A rule without its input (a server on another machine, a recording of an older version)\n"
            "reports nothing.\n",
            table(("doubt", "what it means", "read from"), rows),
        ]
    )
