"""The page of the operating system's settings, from the table of knobs."""

from __future__ import annotations

from docs.markdown import plain
from pgtop_tune.advice.knobs.system import GROUPS, KNOBS, POOL


def system() -> str:
    """Every setting: why one turns it, what it costs, special values, and what to look at with it."""
    parts = [
        "# Settings of the operating system\n",
        "pgtop-tune reads from the machine which settings exist, their present values and their values after a\n"
        "reboot. `scheduler`,\n"
        "`read_ahead_kb` and `nr_requests` exist for every disk under the server's directories (`vda/scheduler`);\n"
        f"`{POOL}` stands for the pools of page sizes other than the default.\n",
    ]
    for group in GROUPS:
        parts.append(f"## {group[:1].upper()}{group[1:]}\n")
        for knob in (each for each in KNOBS if each.group == group):
            rows = [
                ("costs", plain(knob.trades)),
                ("steps", ", ".join(f"`{step}`" for step in knob.steps)),
                ("special", "; ".join(f"`{value}`: {plain(meaning)}" for value, meaning in knob.special)),
                ("related", ", ".join(f"`{name}`" for name in knob.moves_with)),
                ("panes", ", ".join(knob.panes)),
                ("beware", plain(knob.warning)),
            ]
            parts.append(f"### `{knob.name}`\n\n{plain(knob.why)}\n")
            parts.append("\n".join(f"- {label}: {words}" for label, words in rows if words) + "\n")
    return "\n".join(parts)
