"""Writes docs/reference/ from the tables of the program.

    python docs/generate.py            (make docs)

The features of the program are declared as rows: metrics, actions, knobs, options, the fields of a frame. These
pages are made from the rows, and tests/docs/test_generated.py fails when a page in the repository says something else.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pgtop_tune.metrics
import pgtop_tune.tui
from docs.checks_page import checks
from docs.command_table import commands, context, exit_statuses
from docs.conditions_page import conditions_page
from docs.exported_page import exported_page
from docs.markdown import plain, table
from docs.profile_page import profiles
from docs.provenance import cadence_of, files_of, function_of, name_of, screens_of, sections_of
from docs.recording_format import recording_format
from docs.show_page import show_page
from docs.system_page import system
from docs.tokens_page import tokens
from docs.validity_page import validity
from pgtop_tune.advice.knobs.catalogue import KNOBS
from pgtop_tune.base.units import count
from pgtop_tune.cli.app import DEFAULT_COMMAND
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Keyed, Metric, Section
from pgtop_tune.metrics.load import ProgressMetric
from pgtop_tune.metrics.setting_risks import RISKS
from pgtop_tune.tui.actions import ACTIONS, Action, key_name, with_keys
from pgtop_tune.tui.dashboard.explain import PANE_METRICS
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.dialogs.help import Entry

REFERENCE: Final = Path(__file__).resolve().parent / "reference"
_NOTE: Final = "<!-- Made by docs/generate.py (make docs). Do not edit. -->\n\n"
_HEADS: Final = (
    "on screen", "unit", "meaning", "source and formula", "red from", "id", "computed by", "read from", "shown on",
)  # fmt: skip
_SECTION_HEADS: Final = ("section", "struct", "source", "files", "read", "first look", "kept whole")


_BASES: Final = {"FormDialog", "ChangingDialog"}
DIALOGS: Final = {
    "FindingsDialog": "bottleneck", "LoadDialog": "load", "StepsDialog": "load: steps",
    "SearchDialog": "load: search",
    "InitDialog": "load: data set", "ResultsDialog": "load: result", "ParameterDialog": "parameters",
    "ConditionsDialog": "terms of a change", "RestartDialog": "restart", "StartDialog": "experiment: start",
    "ProgressDialog": "experiment: progress", "CheckDialog": "check", "WindowsDialog": "comparison of windows",
    "OverlayDialog": "earlier run under the charts", "HeatmapDialog": "latency heatmap",
    "WaitGroupsDialog": "groups of waits", "DetailsDialog": "details of a row", "PlanDialog": "plan",
    "ColumnsDialog": "columns", "ChoiceDialog": "list of words", "PromptDialog": "line of text",
    "PasswordDialog": "password", "ConfirmDialog": "question", "HelpDialog": "help",
}  # fmt: skip
"""Class → what the reference calls the dialog."""


def metrics() -> str:
    """Every number, module by module of the catalogue, then what panes derive from several of them."""
    parts = [
        "# Metrics\n",
        "Every metric with its meaning and its source. On the screen, `?` shows the same. A dash means that\n"
        "the value is unknown: the first frame, a restart, a statistics reset, or a missing section. A dash never\n"
        "means 0. Δ is the difference between two readings, Δt the time between them.\n",
        "*Computed by* names the function under `pgtop_tune/`, *read from* the sections of a frame with their files\n"
        "(in `pgtop_tune/postgres/sql/`, or the kernel's) and their sampling interval, *shown on* the panes of the\n"
        "dashboard (1), the pages by their keys, and the dialogs.\n",
    ]
    for module in _modules():
        rows = [_metric_row(row) for row in _rows_of(module)]
        if rows:
            parts += [f"## {_first_sentence(module)}\n", table(_HEADS, rows)]
    entries = [entry for shown in PANE_METRICS.values() for entry in shown if isinstance(entry, Entry)]
    parts += ["## Derived metrics, and the columns of the session list\n"]
    rows = [(plain(each.title), each.unit, plain(each.definition), plain(each.source)) for each in entries]
    parts += [table(_HEADS[:4], [tuple(map(str, row)) for row in rows])]
    unseen = [row for module in _modules() for row in _rows_of(module) if not screens_of(row)]
    parts += [
        "## Not on screen\n",
        "No pane, page or dialog shows these metrics themselves. They are exported and compared; some\n"
        "control the display.\n",
        table(("id", "meaning"), [(f"`{row.id}`", plain(row.definition)) for row in unseen]),
        "## Sections of a frame\n",
        table(_SECTION_HEADS, map(_section_row, sections.ALL)),
    ]
    return "\n".join(parts)


def _section_row(section: Section[object]) -> tuple[str, ...]:
    name = getattr(section.struct, "__name__", "")
    struct = f"[{name}](recording-format.md#{name.lower()})"
    marks = ("yes" if each else "" for each in (section.first_look, section.kept_whole))
    files = plain(files_of(section)) if section.queries else ""
    return f"`{name_of(section)}`", struct, plain(section.source), files, cadence_of(section), *marks


def _modules() -> list[ModuleType]:
    names = sorted(each.name for each in pkgutil.iter_modules(pgtop_tune.metrics.__path__))
    return [importlib.import_module(f"pgtop_tune.metrics.{name}") for name in names]


def _rows_of(module: ModuleType) -> list[Any]:
    """Metrics a module defines itself, not those it imports from another."""
    found = {
        value.id: value
        for name, value in vars(module).items()
        if isinstance(value, Metric | Keyed | ProgressMetric) and _defined_in(module, name)
    }
    return list(found.values())


def _defined_in(module: ModuleType, name: str) -> bool:
    source = Path(module.__file__ or "").read_text(encoding="utf-8")
    return f"\n{name} = " in source or f"\n{name}: Final" in source


def _metric_row(row: Any) -> tuple[str, ...]:
    critical = getattr(row, "critical", None)
    red = "" if critical is None else count(critical)
    read_from = "; ".join(
        f"`{name_of(each)}`: {plain(files_of(each))}, {cadence_of(each)}" for each in sections_of(row)
    )
    words = plain(row.title), row.unit, plain(row.definition), plain(row.source), red, f"`{row.id}`"
    return *words, f"`{function_of(row)}`", read_from, ", ".join(screens_of(row)) or "no screen"


def _first_sentence(module: ModuleType) -> str:
    return (module.__doc__ or "").strip().splitlines()[0].rstrip(".")


def keys() -> str:
    """Every action, group by group."""
    parts = [
        "# Keys\n",
        "An action exists only in sessions that have what the action needs: a replay, for example, has no load.\n"
        "Where two actions have one key, the words of the first say when it is the first that acts.\n",
    ]
    groups: dict[str, list[Action]] = {}
    for action in ACTIONS:
        groups.setdefault(action.group, []).append(action)
    for group, actions in groups.items():
        rows = [(_shown_keys(each), plain(each.description), f"`{each.id}`", ", ".join(each.needs)) for each in actions]
        parts += [f"## {group.capitalize()}\n", table(("keys", "effect", "action", "needs"), rows)]
    parts += [
        "## Dialogs\n",
        "`Esc`, `Ctrl+C`, `q` and `F10` close every dialog; where text is typed, `q` is a letter. Arrows, `j` `k`,\n"
        "`PgUp` `PgDn`, `Home` or `g` and `End` or `G` scroll its text or move in its list; in a list of words a\n"
        "letter goes to the word that begins with it, and among earlier runs `g` draws one. On the lower edge stand:\n",
        table(
            ("dialog", "keys"),
            [(DIALOGS[each.__name__], plain(" · ".join(each.KEYS.split("  ")))) for each in _dialogs(Dialog)],
        ),
    ]
    moved = [(_shown_keys(each), plain(with_keys(each.moved, {}))) for each in ACTIONS if each.moved]
    parts += [
        "## Keys that moved\n",
        "These did something else in earlier versions. The screen says so once.\n",
        table(("keys", "now"), moved),
        "## Other keys\n",
        "`config.toml` in the configuration directory (`~/.config/pgtop-tune/`) assigns other keys to actions:\n",
        '```toml\n[keys]\nquit = "q,f12"\nnote = "ctrl+n"\n```\n',
        "Names are those in the column *action*. Separate several keys by commas; write `comma` for the comma key.\n"
        "With an unknown action, an action without a key, or one key for two actions, pgtop-tune does not start and\n"
        "prints the reason. A further key of the table, such as `F3`, yields to yours.\n",
    ]
    return "\n".join(parts)


def _dialogs(base: type[Dialog[Any]]) -> list[type[Dialog[Any]]]:
    """Every dialog, in the order of `DIALOGS`; one that has no name there ends the making."""
    for module in pkgutil.walk_packages(pgtop_tune.tui.__path__, "pgtop_tune.tui."):
        importlib.import_module(module.name)
    below = {each.__name__: each for each in _below(base) if each.__module__.startswith("pgtop_tune.")}
    return sorted((below[name] for name in below.keys() - _BASES), key=lambda each: list(DIALOGS).index(each.__name__))


def _below(base: type[Any]) -> list[type[Any]]:
    return [each for found in base.__subclasses__() for each in (found, *_below(found))]


def _shown_keys(action: Action) -> str:
    return " ".join(f"`{key_name(key)}`" for key in action.keys)


_OUTPUTS: Final = (
    ("`check`", "`.html`, `.json`, `.md`, `.sh` (script of fixes), `.om` (OpenMetrics); others are text"),
    ("`export`", "`.csv`, `.parquet`, `.om`; `.gz` compresses CSV and OpenMetrics"),
    ("`record`", "`.jsonl`; `.gz` and `.zst` compress it"),
    ("`report`, `experiment report`", "`.html`, `.md`"),
    ("`tune --show`", "`.html`, `.md`, `.sql`"),
)


def cli() -> str:
    """The help of every command as typer writes it, in plain text, and the exit statuses."""
    parts = [
        "# Command line\n",
        f"`pgtop-tune` without a command is `pgtop-tune {DEFAULT_COMMAND}`: `pgtop-tune -d bench` watches a server.\n",
    ]
    parts += [
        "Durations take a unit everywhere: `2s`, `500ms`, `5m`, `1h30m`; rates and steps take `k` and `M`. A\n"
        "bare number keeps the option's own unit.\n",
        "`--json` and `--csv` are short for `--format`. With `-o`, the extension decides the format; `--format` takes\n"
        "precedence over it:\n",
        table(("command", "`-o`"), _OUTPUTS),
        "Commands that change something show it with `--dry-run` and change nothing: `set`, `reset`,\n"
        "`advise --apply`, `revert`, `ab`, `tune`, `experiment run`, `bench init`, `bench run`.\n",
    ]
    for call, command in commands():
        title = " ".join(call[1:]) or call[0]
        parts.append(f"{'#' * max(len(call), 2)} {title}\n\n{_help(call, command)}")
    rows = [(str(status), name, plain(meaning)) for status, name, meaning in exit_statuses()]
    parts += ["## Exit status\n", table(("status", "name", "when"), rows)]
    return "\n".join(parts)


def _help(call: tuple[str, ...], command: Any) -> str:
    text = "\n".join(line.rstrip() for line in command.get_help(context(call, command)).splitlines())
    return f"```text\n{text}\n```\n"


def parameters() -> str:
    """The parameters worth turning, group by group."""
    parts = [
        "# Parameters\n",
        "The parameters in the list of `p`. Value, unit, range and the time when a change takes effect come from\n"
        "`pg_settings` of the server; parameters that the server lacks are left out. `+` and `-` go\n"
        "through the steps;\n"
        "you can type any other value, and the server accepts or refuses it.\n",
    ]
    groups = dict.fromkeys(knob.group for knob in KNOBS)
    for group in groups:
        parts.append(f"## {group[:1].upper()}{group[1:] if group != 'wal' else 'AL'}\n")
        for knob in (each for each in KNOBS if each.group == group):
            parts.append(f"### `{knob.name}`\n")
            parts.append(f"{plain(knob.why)}\n")
            rows = [
                ("costs", plain(knob.trades)),
                ("steps", ", ".join(f"`{step}`" for step in knob.steps) or "doubles and halves"),
                ("panes", ", ".join(knob.panes)),
            ]
            special = "; ".join(f"`{value}`: {plain(words)}" for value, words in knob.special)
            others = ", ".join(f"`{name}`" for name in knob.moves_with)
            rows += [(label, words) for label, words in (("special", special), ("related", others)) if words]
            rows += [(f"`{risk.values}` {risk.verb}", plain(risk.reason)) for risk in RISKS.get(knob.name, ())]
            rows += [("beware", plain(knob.warning))] if knob.warning else []
            parts.append("\n".join(f"- {label}: {words}" for label, words in rows) + "\n")
    return "\n".join(parts)


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "metrics.md": metrics,
    "keys.md": keys,
    "cli.md": cli,
    "parameters.md": parameters,
    "profiles.md": profiles,
    "recording-format.md": recording_format,
    "system.md": system,
    "tokens.md": tokens,
    "validity.md": validity,
    "checks.md": checks,
    "conditions.md": conditions_page,
    "exported.md": exported_page,
    "show.md": show_page,
}
"""File name and what writes its text."""


def page(name: str) -> str:
    """The text of a page as it stands in the repository.

    Raises:
        KeyError: There is no such page.
    """
    return _NOTE + PAGES[name]().rstrip("\n") + "\n"


def main() -> None:
    """Writes all pages."""
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for name in PAGES:
        (REFERENCE / name).write_text(page(name), encoding="utf-8")
        print(f"docs/reference/{name}")


if __name__ == "__main__":
    main()
