"""Actions behind the keys of the dashboard and the pages, as rows: bindings, footer, help, palette and docs come from
here.

A row that names something in `needs` exists only where the session has it: no load keys on a replay, no transport
keys on a live server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pgtop_tune.base.errors import UsageProblem

if TYPE_CHECKING:
    from pgtop_tune.tui.pages.page import Page

# The pages there are, in the order of their keys. A page is one row here, and is imported when it is first opened.

DASHBOARD_KEY: Final = "1"
DASHBOARD_ID: Final = "dashboard"
DASHBOARD_NAME: Final = "dash"
POOLERS_KEY: Final = "0"


class PageRow(Struct, frozen=True):
    """A page as keys and footers know it; the same words stand in its module.

    Attributes:
        key: As `Page.key`.
        id: As `Page.id`.
        title: As `Page.title`.
        module: Of this package; its `PAGE` is the page.
    """

    key: str
    id: str
    title: str
    module: str

    @property
    def page(self) -> Page:
        """The page itself."""
        page_module_page: Page = import_module(f"pgtop_tune.tui.pages.{self.module}").PAGE
        return page_module_page


PAGES: Final = (
    PageRow("2", "sessions", "sessions", "sessions"),
    PageRow("3", "waits", "waits", "waits"),
    PageRow("4", "locks", "locks", "locks"),
    PageRow("5", "statements", "statements", "statements"),
    PageRow("6", "io", "io/wal", "io"),
    PageRow("7", "host", "host", "host"),
    PageRow("8", "tables", "tables", "relations"),
    PageRow("9", "repl", "repl", "replication"),
    PageRow(POOLERS_KEY, "poolers", "pools", "poolers"),
)

NAMES: Final = ((DASHBOARD_KEY, DASHBOARD_NAME), *((row.key, row.title) for row in PAGES))
"""Key and name of every screen, for footers."""


def page_of(name: str) -> Page:
    """Return the page with that id.

    Raises:
        KeyError: There is none.
    """
    for row in PAGES:
        if row.id == name:
            return row.page
    raise KeyError(name)


def all_pages() -> tuple[Page, ...]:
    """Return every page, in the order of the keys."""
    return tuple(row.page for row in PAGES)


class Need(StrEnum):
    """Parts of a session that an action may depend on."""

    LIVE = "live"
    INTERVAL = "interval"
    LOAD = "load"
    PARAMETERS = "parameters"
    RECORDING = "recording"
    TRANSPORT = "transport"
    PASSWORD = "password"
    BACKENDS = "sessions"
    CHECK = "check"
    EXPERIMENT = "experiments"
    FRAMES = "frames"
    OVERLAYS = "ghosts"


class FooterPart(StrEnum):
    """Parts of the footer, from left to right; each has its actions in the order of the table."""

    PAGE = "page"
    """Actions that turn to another page or table."""
    ROW = "row"
    """Actions on the selected row."""
    DEED = "deed"
    """Actions that change something, or the moment shown."""
    MORE = "more"
    """Actions that are shown where there is room."""
    LAST = "last"


class Action(Struct, frozen=True):
    """One thing the operator can do.

    Attributes:
        id: Stable name for the configuration file.
        keys: Default keys, Textual's names or single characters; a comma is "comma".
        action: What runs: an action of the screen in view, or with "app." before it one of the application.
        description: One line for help, palette and docs.
        group: Heading in the help.
        short: One word for the footer; "" keeps it out of there.
        needs: What must be there for the action to exist.
        part: Part of the footer.
        moving: Word for the footer while another moment than the newest is shown.
        loading: Word for the footer while a load of ours runs.
        moved: What one of its keys did in earlier versions, and the key for that now; for `with_keys`.
        before: Id of the action whose key this one takes where a screen offers both; "" for none.
    """

    id: str
    keys: tuple[str, ...]
    action: str
    description: str
    group: str
    short: str = ""
    needs: tuple[Need, ...] = ()
    part: FooterPart = FooterPart.MORE
    moving: str = ""
    loading: str = ""
    moved: str = ""
    before: str = ""


_SCREEN: Final = "screen"
_PAGES: Final = "pages"
ROWS: Final = "rows of a table"
_TUNING: Final = "load and parameters"
MOVING: Final = "moving through time"
_WINDOWS: Final = "comparing two windows"

ACTIONS: Final[tuple[Action, ...]] = (
    Action("load", ("b",), "app.load", "start or stop a load (pgbench), its steps, or a search for its highest rate",
        _TUNING, "load", (Need.LOAD,), FooterPart.DEED),
    Action("more-clients", ("L",), "app.change_load('more clients')", "more clients in the running load, by a quarter",
        _TUNING, "", (Need.LOAD,), FooterPart.MORE, loading="clients"),
    Action("fewer-clients", ("l",), "app.change_load('fewer clients')",
        "fewer clients in the running load, by a quarter", _TUNING, "", (Need.LOAD,)),
    Action("rate-up", (")",), "app.change_load('rate up')", "a higher rate of the running load, by a quarter", _TUNING,
        "", (Need.LOAD,), FooterPart.MORE, loading="rate"),
    Action("rate-down", ("(",), "app.change_load('rate down')", "a lower rate of the running load, by a quarter",
        _TUNING, "", (Need.LOAD,)),
    Action("pause-load", ("B",), "app.change_load('pause')",
        "pause the running load (its sessions end), or go on with it", _TUNING, "", (Need.LOAD,), FooterPart.MORE,
        loading="hold"),
    Action("parameters", ("p",), "app.parameters", "change parameters, live", _TUNING, "params", (Need.PARAMETERS,),
        FooterPart.DEED),
    Action("undo", ("u",), "app.undo", "undo the last change set", _TUNING, "undo", (Need.PARAMETERS,)),
    Action("undo-all", ("U",), "app.undo(True)", "undo every change in force", _TUNING, "",
        (Need.PARAMETERS,)),
    Action("redo", ("ctrl+r",), "app.redo", "redo the last undone change", _TUNING, "", (Need.PARAMETERS,)),
    Action("keep", ("Y",), "app.keep", "confirm the pending change; keep B of an experiment", _TUNING, "",
        (Need.PARAMETERS,)),
    Action("experiment", ("x",), "app.experiment", "experiment: staged values (B) against those in force (A)",
        _TUNING, "A/B", (Need.EXPERIMENT,), FooterPart.DEED),
    Action("check", ("C",), "app.check", "check this server and its machine: risks and their fixes",
        _TUNING, "check", (Need.CHECK,), FooterPart.DEED),
    Action("password", ("P",), "app.password", "type the password for the server", _TUNING, "", (Need.PASSWORD,)),
    Action("findings", ("w",), "app.findings", "bottleneck: every finding with its evidence and next step",
        _SCREEN, "why"),
    Action("deed", ("f",), "app.deed", "do what the first line ends with (end, plan, page), asked first", _SCREEN,
        moved="{deed} does the action at the end of the first line; {tag} tags rows"),
    Action("note", ("m",), "app.note", "add a note to the tape", _SCREEN, "note", (Need.LIVE,)),
    Action("ghost", ("g",), "app.overlay", "show an earlier run under the charts, with difference; or none",
        _SCREEN, "", (Need.OVERLAYS,)),
    Action("live", ("z",), "app.live", "return to live, in a replay to the end", MOVING, "", (Need.TRANSPORT,),
        FooterPart.DEED, "newest"),
    Action("step-back", ("comma",), "app.step(-1)", "one frame back", MOVING, "", (Need.TRANSPORT,),
        FooterPart.DEED, "step"),
    Action("step-forward", ("full_stop",), "app.step(1)", "one frame forward", MOVING, "", (Need.TRANSPORT,)),
    Action("jump", ("T",), "app.jump", "jump: 3m ago, 12:40, -30s, +1m, 00:05:00", MOVING, "back", (Need.TRANSPORT,),
        FooterPart.DEED, "jump"),
    Action("next-event", ("n",), "app.seek('NEXT_EVENT')", "jump to the next event", MOVING, "",
        (Need.TRANSPORT,), moving="event"),
    Action("previous-event", ("N",), "app.seek('PREVIOUS_EVENT')", "jump to the previous event", MOVING, "",
        (Need.TRANSPORT,)),
    Action("next-checkpoint", ("v",), "app.seek('NEXT_CHECKPOINT')", "jump to the next checkpoint", MOVING, "",
        (Need.TRANSPORT,)),
    Action("previous-checkpoint", ("V",), "app.seek('PREVIOUS_CHECKPOINT')", "jump to the previous checkpoint", MOVING,
        "", (Need.TRANSPORT,)),
    Action("worst-p99", ("W",), "app.seek('WORST_SECOND')", "jump to the second with the slowest transaction", MOVING,
        "", (Need.TRANSPORT,)),
    Action("slower", ("{",), "app.speed(-1)", "play at half the speed", MOVING, "", (Need.TRANSPORT,)),
    Action("faster", ("}",), "app.speed(1)", "play at twice the speed", MOVING, "", (Need.TRANSPORT,),
        moving="faster"),
    Action("record", ("r",), "app.record", "start or stop recording", _SCREEN, "rec", (Need.RECORDING,),
        FooterPart.DEED),
    Action("mark-begin", ("[",), "app.mark", "start a window at the time shown", _WINDOWS, "", (Need.FRAMES,)),
    Action("mark-end", ("]",), "app.mark(True)", "end the window here; the second one opens the comparison",
        _WINDOWS, "", (Need.FRAMES,)),
    Action("mark-earlier", ("shift+left",), "app.mark_moving(-1)", "mark a window, going one frame back", _WINDOWS, "",
        (Need.FRAMES, Need.TRANSPORT), FooterPart.DEED, "mark"),
    Action("mark-later", ("shift+right",), "app.mark_moving(1)", "mark a window, going one frame forward", _WINDOWS, "",
        (Need.FRAMES, Need.TRANSPORT)),
    Action("brush", ("D",), "app.compare_windows",
        "compare window A with window B, or a window with the time before it", _WINDOWS, "", (Need.FRAMES,),
        FooterPart.DEED, "compare"),
    Action("details", ("enter",), "details", "all details of the selected row; of the bottleneck without one", ROWS,
        "open", part=FooterPart.ROW,
        moved="{details} without a selected row opens the bottleneck; {down} selects the first row"),
    Action("explain", ("e",), "app.explain", "plan of the selected query or statement (EXPLAIN, never ANALYZE)", ROWS,
        "plan", (Need.BACKENDS,), FooterPart.ROW),
    Action("cancel", ("c",), "app.signal('cancel')", "cancel the selected, tagged or all filtered statements", ROWS,
        "cancel", (Need.BACKENDS,), FooterPart.ROW),
    Action("terminate", ("K", "f9"), "app.signal('terminate')",
        "terminate the selected, tagged or all filtered sessions", ROWS, "end", (Need.BACKENDS,), FooterPart.ROW),
    Action("filter", ("/", "f3"), "filter", "show only rows with this text", ROWS, "filter"),
    Action("sort", ("s",), "sort(1)", "sort by the next column", ROWS, "sort"),
    Action("sort-right", (">",), "sort(1)", "sort by the column to the right", ROWS),
    Action("sort-left", ("<",), "sort(-1)", "sort by the column to the left", ROWS),
    Action("reverse", ("R",), "reverse", "reverse the sort order", ROWS),
    Action("idle", ("i",), "idle", "hide or show idle rows", ROWS, "idle"),
    Action("background", ("a",), "background", "list background processes, or fold them into one line", ROWS),
    Action("columns", ("o",), "columns", "choose the columns of this table", ROWS, "columns"),
    Action("copy", ("y",), "copy", "copy the query to the clipboard of your terminal (OSC 52)", ROWS, "copy"),
    Action("tag", ("insert", "asterisk"), "tag", "tag or untag the selected row", ROWS, "tag"),
    Action("up", ("up", "k"), "move(-1)", "one row up", ROWS),
    Action("down", ("down", "j"), "move(1)", "one row down", ROWS),
    Action("page-up", ("pageup", "ctrl+b", "ctrl+u"), "page(-1)", "one page of rows up", ROWS),
    Action("page-down", ("pagedown", "ctrl+f", "ctrl+d"), "page(1)", "one page of rows down", ROWS),
    Action("first", ("home",), "edge(-1)", "first row", ROWS),
    Action("last", ("end",), "edge(1)", "last row", ROWS),
    Action("top", ("g",), "top", "first row, on a page", ROWS, before="ghost",
        moved="{top} goes to the first row of a page; on the dashboard {ghost} shows an earlier run"),
    Action("bottom", ("G",), "bottom", "last row, on a page", ROWS, before="wait-groups",
        moved="{bottom} goes to the last row of a page; on the dashboard {wait-groups} groups waits"),
    Action("next-match", ("n",), "match(1)", "next row that the filter shows, while there is a filter", ROWS,
        before="next-event", moved="{next-match} goes to the next match; {unselect} clears the filter, then "
        "{next-event} jumps to the next event"),
    Action("previous-match", ("N",), "match(-1)", "previous row that the filter shows, while there is a filter", ROWS,
        before="previous-event", moved="{previous-match} goes to the previous match; {unselect} clears the filter, "
        "then {previous-event} jumps to the previous event"),
    Action("left", ("left",), "sideways(-1)", "one column to the left; where none is hidden there, one frame back",
        ROWS),
    Action("right", ("right",), "sideways(1)", "one column to the right; where none is hidden there, one frame forward",
        ROWS),
    Action("unselect", ("escape",), "unselect", "clear selection, tags and filter; then the marks", ROWS),
    Action("dashboard", (DASHBOARD_KEY,), f"app.look_at('{DASHBOARD_ID}')", "the dashboard", _PAGES),
    *(
        Action(page.id, (page.key,), f"app.look_at('{page.id}')", f"the {page.title} page", _PAGES)
        for page in PAGES
    ),
    Action("next-table", ("tab",), "table(1)", "next table of this page", _PAGES, "table", part=FooterPart.PAGE),
    Action("previous-table", ("shift+tab",), "table(-1)", "previous table of this page", _PAGES),
    Action("pause", ("space",), "app.pause", "freeze the screen; pause a replay, or the past", _SCREEN, "pause"),
    Action("longer", ("+",), "app.interval(1)", "sample less often", _SCREEN, "", (Need.INTERVAL,)),
    Action("shorter", ("-",), "app.interval(-1)", "sample more often", _SCREEN, "", (Need.INTERVAL,)),
    Action("heatmap", ("H",), "app.heatmap", "latency heatmap: transactions by time and latency", _SCREEN),
    Action("wait-groups", ("G",), "app.wait_groups", "group waits by any two properties; Enter opens a group", _SCREEN),
    Action("burst", ("F",), "app.burst", "sample waits 50 times a second for 20 s: the tail below 100 ms", _SCREEN, "",
        (Need.INTERVAL,)),
    Action("zoom", ("Z",), "zoom", "length of the charts: 3 minutes, 10 minutes, an hour, all, 1 minute", _SCREEN),
    Action("theme", ("t",), "app.theme", "next colour theme", _SCREEN),
    Action("palette", ("ctrl+p", "colon"), "app.command_palette", "search all actions", _SCREEN),
    Action("mouse", ("M",), "app.mouse", "mouse on or off; Shift selects text while it is on", _SCREEN),
    Action("redraw", ("ctrl+l",), "app.redraw", "redraw the whole screen", _SCREEN),
    Action("suspend", ("ctrl+z",), "app.suspend_process", "suspend to the shell (fg resumes)",
        _SCREEN),
    Action("help", ("?", "f1", "h"), "app.help", "keys, and the meaning of every number", _SCREEN, "help",
        part=FooterPart.LAST),
    Action("quit", ("q", "ctrl+c", "f10"), "app.quit", "quit; asks about a running load and changes in force", _SCREEN,
        "quit", part=FooterPart.LAST),
)  # fmt: skip
"""In the order of the footer, the help and the palette."""

_SHOWN_KEYS: Final = {
    "comma": ",", "full_stop": ".", "question_mark": "?", "escape": "Esc", "enter": "Enter", "space": "Space",
    "up": "↑", "down": "↓", "left": "←", "right": "→", "tab": "Tab", "insert": "Ins",
    "pageup": "PgUp", "pagedown": "PgDn", "home": "Home", "end": "End", "asterisk": "*", "colon": ":",
    "ctrl+backslash": "Ctrl+\\",
}  # fmt: skip


_LONG_NAMES: Final = {
    "question_mark": "?", "plus": "+", "minus": "-", "slash": "/", "less_than_sign": "<", "greater_than_sign": ">",
    "left_curly_bracket": "{", "right_curly_bracket": "}", "left_square_bracket": "[",
    "right_square_bracket": "]", "left_parenthesis": "(", "right_parenthesis": ")", ".": "full_stop", "*": "asterisk",
    ":": "colon",
}  # fmt: skip
"""The same key under another name, so that a clash is seen however it is spelled."""


def key_name(key: str) -> str:
    """Return a key as people write it: "comma" → ",", "ctrl+p" → "Ctrl+P"."""
    if key in _SHOWN_KEYS:
        return _SHOWN_KEYS[key]
    if key.startswith("ctrl+"):
        return f"Ctrl+{key[5:].upper()}"
    if key.startswith("shift+"):
        return f"Shift+{key_name(key[6:])}"
    return key.upper() if key[0] == "f" and key[1:].isdigit() else key


_FILTERS: Final = "{filter} shows only rows with a text, {unselect} all"
_LOCKS: Final = "{locks} has who waits for whom"
_SORTS: Final = "{sort}, {sort-left} and {sort-right} sort, {reverse} reverses"
_MEANT: Final[Mapping[str, str]] = {
    "f2": "{columns} chooses columns, {theme} colours", "S": "{columns} chooses columns, {theme} colours",
    "f4": _FILTERS, "ampersand": _FILTERS, "backslash": _FILTERS,
    "f5": _LOCKS, "l": _LOCKS, "L": _LOCKS,
    "f6": _SORTS, "I": _SORTS,
    "f7": "{cancel} cancels, {terminate} ends a session", "f8": "{cancel} cancels, {terminate} ends a session",
    "underscore": "{cancel} cancels, {terminate} ends a session",
    "d": "{shorter} and {longer} change the time between samples",
    "exclamation_mark": "{suspend} goes to the shell, fg comes back",
    "Q": "{quit} quits", "ctrl+backslash": "{quit} quits", "E": "{explain} shows a plan", "A": "{explain} shows a plan",
    "tab": "{dashboard} and {sessions} to {repl} are the pages", "Z": "{zoom} changes the charts of the dashboard",
    "shift+tab": "{dashboard} and {sessions} to {repl} are the pages",
}  # fmt: skip
"""Keys of other programs → the words for ours, where they do nothing here."""


def for_unknown_key(key: str, character: str | None, keymap: Mapping[str, str]) -> str:
    """Return the words for a key that does nothing on a page or the dashboard."""
    return f"{shown_key(key, character)} does nothing here: " + with_keys(
        _MEANT.get(key, "{help} lists the keys"), keymap
    )


def shown_key(key: str, character: str | None) -> str:
    """Return a key that was pressed as people write it."""
    return character if character and character.isprintable() and not character.isspace() else key_name(key)


TOLD_S: Final = 4.0
"""Time for which a message about a key without effect stands."""


def available(has: Iterable[Need]) -> tuple[Action, ...]:
    """Return the actions that exist in a session which has these things."""
    present = frozenset(has)
    return tuple(action for action in ACTIONS if present.issuperset(action.needs))


def keys_of(action: Action, keymap: Mapping[str, str]) -> tuple[str, ...]:
    """Return the keys of an action under a checked keymap.

    Keys of the table yield to those of the operator, except the first of an action that stands alone on it; an action
    that shares all its keys and loses them follows the other one.
    """
    if mapped := keymap.get(action.id):
        return _listed(mapped)
    claimed = {_LONG_NAMES.get(key, key) for keys in keymap.values() for key in _listed(keys)}
    first = "" if action.before else action.keys[0]
    keys = tuple(key for key in action.keys if key == first or _LONG_NAMES.get(key, key) not in claimed)
    return keys or next(keys_of(partner, keymap) for partner in ACTIONS if partner.id == action.before)


def _listed(keys: str) -> tuple[str, ...]:
    return tuple(key.strip() for key in keys.split(","))


def keys_among(action: Action, offered: Iterable[Action], keymap: Mapping[str, str]) -> tuple[str, ...]:
    """Return the keys of an action on a screen that offers these actions: one key does one thing there."""
    claimed = {key for partner in offered if partner.before == action.id for key in keys_of(partner, keymap)}
    return tuple(key for key in keys_of(action, keymap) if key not in claimed)


def with_keys(text: str, keymap: Mapping[str, str]) -> str:
    """Return a text of ours with the keys of the actions that it names: "{quit} asks again" → "q asks again"."""
    return text.format_map({action.id: key_name(keys_of(action, keymap)[0]) for action in ACTIONS})


def check_keymap(keymap: Mapping[str, str]) -> None:
    """Look whether a keymap from the configuration file can be used.

    Raises:
        UsageProblem: It names an unknown action, leaves one without a key, or gives one key to two actions; the
            message lists everything that is wrong.
    """
    action_ids = {action.id for action in ACTIONS}
    problems = [f'there is no action "{name}"' for name in keymap if name not in action_ids]
    owner: dict[str, str] = {}
    sharing = {frozenset((action.id, action.before)) for action in ACTIONS}
    for action in ACTIONS:
        for spelled in keys_of(action, keymap):
            key = _LONG_NAMES.get(spelled, spelled)
            if not key:
                problems.append(f'"{action.id}" has an empty key (a comma as a key is written "comma")')
            elif key in owner and owner[key] != action.id and frozenset((owner[key], action.id)) not in sharing:
                problems.append(f'{key_name(key)} is bound to "{owner[key]}" and to "{action.id}"')
            owner[key] = action.id
    if problems:
        raise UsageProblem("keys: " + "; ".join(problems), "actions are: " + ", ".join(sorted(action_ids)))


class FooterKeys(Struct, frozen=True):
    """Keys and words of the footer, part by part.

    Attributes:
        tables: Those that turn to another table of the page.
        rows: Those of the selected row.
        deeds: Those that change something, or the moment shown.
        more: Those that are shown where there is room.
        last: Help and leaving.
        selected: Whether a row is selected.
    """

    tables: tuple[tuple[str, str], ...] = ()
    rows: tuple[tuple[str, str], ...] = ()
    deeds: tuple[tuple[str, str], ...] = ()
    more: tuple[tuple[str, str], ...] = ()
    last: tuple[tuple[str, str], ...] = ()
    selected: bool = False


_BACK_AND_FORTH: Final = {
    "step-back": ("step-back", "step-forward"),
    "mark-earlier": ("mark-earlier", "mark-later"),
    "more-clients": ("more-clients", "fewer-clients"),
    "rate-up": ("rate-up", "rate-down"),
}
"""Action → the two actions whose keys share its word in the footer."""
_ARROWS: Final = ("left", "right")


def footer_keys(
    actions: Iterable[Action], keymap: Mapping[str, str], *, moving: bool = False, past: bool = False,
    arrows: bool = False, loading: bool = False,
) -> FooterKeys:  # fmt: skip
    """Return the keys of the footer, each part in the table's order.

    Args:
        actions: Actions that do something here.
        keymap: The operator's own keys.
        moving: Whether another moment than the newest of a live session is shown.
        past: Whether that is a moment of the past: sessions of then are not ended.
        arrows: Whether the arrow keys go through time.
        loading: Whether a load of ours runs now.
    """
    offered = tuple(actions)
    keys = {action.id: key_name(key) for action in offered for key in keys_among(action, offered, keymap)[:1]}

    def label(action: Action) -> str:
        pair = _ARROWS if arrows and action.id == "step-back" else _BACK_AND_FORTH.get(action.id, (action.id,))
        first, *following = (keys.get(name, "") for name in pair)
        shared = first.rpartition("+")[0]
        return first + "".join(second.removeprefix(f"{shared}+") for second in following)

    parts: dict[FooterPart, tuple[tuple[str, str], ...]] = dict.fromkeys(FooterPart, ())
    for action in offered:
        word = action.moving if moving and action.moving else action.short
        word = action.loading if loading and action.loading else word
        part = FooterPart.MORE if moving and not action.moving and action.part is FooterPart.DEED else action.part
        if word and action.id in keys and not (past and part is FooterPart.ROW and Need.BACKENDS in action.needs):
            parts[part] += ((label(action), word),)
    return FooterKeys(
        tables=parts[FooterPart.PAGE],
        rows=parts[FooterPart.ROW],
        deeds=parts[FooterPart.DEED],
        more=parts[FooterPart.MORE],
        last=parts[FooterPart.LAST],
    )
