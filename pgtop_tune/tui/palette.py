"""Themes: files that say how every name of `STYLES` looks, and which colours Textual's own widgets take.

A theme is one TOML file:

    name = "dark"
    description = "one line for the list of themes"
    extends = "ansi-dark"        optional: what is missing below comes from this theme
    dark = true
    base = ""                    style of plain text; "" leaves the terminal's own colours and costs no bytes
    [widgets]                    colours of dialogs as Textual knows them: primary, warning, error …
    [variables]                  optional: Textual's theme variables
    [styles]                     a Rich style per name of STYLES: "bold color(221)", "#ffffff on #000000", "reverse"

Shipped themes lie in `themes/`; the user's own in `paths.config_dir()/themes` and win over shipped ones of that name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from rich.errors import StyleSyntaxError
from rich.style import Style
from textual.color import Color, ColorParseError
from textual.theme import Theme

from pgtop_tune.base import paths
from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.toml_text import NotToml, tables_of, toml_source
from pgtop_tune.tui.widgets.lines import PLAIN, STYLES

DEFAULT: Final = "dark"
WITHOUT_COLOUR: Final = "mono"
SIXTEEN_COLOURS: Final = "ansi-dark"
_WITHOUT_COLOURS: Final = ("vt1", "vt2", "vt3", "vt5")
"""How TERM begins on terminals without colours, of which Rich knows nothing."""
_WIDGET_COLOURS: Final = (
    "primary", "secondary", "accent", "warning", "error", "success", "foreground", "background", "surface", "panel",
)  # fmt: skip
_GROUNDS: Final = ("foreground", "background", "surface", "panel")
"""Colours that are the terminal's own unless a theme names others."""
_NATIVE_VARIABLES: Final = {"ansi-background": "ansi_default", "ansi-foreground": "ansi_default"}
"""Asked for by Textual's own style sheets, and defined only by its own native themes."""
_TEXT_STYLES: Final = frozenset({"none", "bold", "dim", "italic", "underline", "reverse", "strike"})
_KEYS: Final = frozenset({"name", "description", "extends", "dark", "base", "widgets", "variables", "styles"})


@dataclass
class PaletteTheme(Theme):
    """A theme of Textual that also knows the styles of lines.

    Attributes:
        description: One line for the list of themes.
        spans: A Rich style per name of `STYLES`, and for `PLAIN`; None where text is written without any sequence.
    """

    description: str = ""
    spans: Mapping[str, Style | None] = field(default_factory=dict)


class Themes(Struct, frozen=True):
    """Themes of all directories.

    Attributes:
        by_name: Themes that can be used, the default first.
        broken: File → everything that is wrong in it.
    """

    by_name: dict[str, PaletteTheme]
    broken: Mapping[str, str]


def shipped_themes() -> dict[str, PaletteTheme]:
    """Return the themes that come with the program, by name, the default first."""
    return _themes_of(
        {str(path): _read(path) for path in sorted(paths.shipped_directory("themes", "themes").glob("*.toml"))}
    ).by_name


def load_themes(no_color: bool = False) -> Themes:
    """Return shipped and the user's own themes; a file that is broken is left out.

    Args:
        no_color: Draw every theme's lines with attributes only (NO_COLOR, see no-color.org).
    """
    files = [
        *sorted(paths.shipped_directory("themes", "themes").glob("*.toml")),
        *sorted((paths.config_dir() / "themes").glob("*.toml")),
    ]
    themes = _themes_of({str(path): _read(path) for path in files})
    if no_color:
        mono = themes.by_name.get(WITHOUT_COLOUR)
        for theme in themes.by_name.values():
            spans = theme.spans if mono is None else mono.spans
            theme.spans = {name: None if style is None else style.without_color for name, style in spans.items()}
    return themes


def usual_theme(color_system: str | None, environ: Mapping[str, str]) -> str:
    """Return the name of the theme to begin with where none is asked for.

    Args:
        color_system: As Rich names it: from a palette of 256, sixteen colours make lies of several.
        environ: The process's environment: NO_COLOR, and TERM for terminals without colours.
    """
    if environ.get("NO_COLOR") or environ.get("TERM", "").startswith(_WITHOUT_COLOURS):
        return WITHOUT_COLOUR
    return SIXTEEN_COLOURS if color_system == "standard" else DEFAULT


def choose(themes: Themes, requested: str, usual: str) -> str:
    """Return the name of the theme to begin with.

    Args:
        themes: The themes that were loaded.
        requested: As the operator says; "" for the usual one.
        usual: Taken where nothing is wanted; another one where its file is broken.

    Raises:
        UsageProblem: The requested theme is not there, or broken; or none can be used.
    """
    name = requested or (usual if usual in themes.by_name else next(iter(themes.by_name), ""))
    if name in themes.by_name:
        return name
    details = [f"{file}: {problems}" for file, problems in themes.broken.items()]
    message = f'there is no theme "{requested}"' if requested else "no usable theme was found"
    raise UsageProblem("; ".join((message, *details)), "themes are: " + ", ".join(themes.by_name))


def _read(path: Path) -> dict[str, Any] | str:
    """Return the file's tables, or why there are none."""
    try:
        return tables_of(toml_source(paths.content_of(path)))
    except OSError as problem:
        return problem.strerror or str(problem)
    except NotToml as problem:
        return str(problem)


def _themes_of(files: Mapping[str, dict[str, Any] | str]) -> Themes:
    """Return the themes of all files but those that are broken; these neither replace a theme nor are extended."""
    sound, broken = dict(files), dict[str, str]()
    while True:
        themes, wrong = _made(sound)
        if not wrong:
            return Themes(dict(sorted(themes.items(), key=lambda item: (item[0] != DEFAULT, item[0]))), broken)
        # One at a time: what extends it may be well with the shipped theme of that name.
        owner = {_word(sound[file], "name"): file for file in wrong}
        roots = [file for file in wrong if owner.get(_word(sound[file], "extends"), file) == file]
        worst = (roots or [*wrong])[-1]
        broken[worst] = "; ".join(wrong[worst])
        del sound[worst]


def _made(files: Mapping[str, dict[str, Any] | str]) -> tuple[dict[str, PaletteTheme], dict[str, list[str]]]:
    """Return the themes, and what is wrong by file."""
    themes: dict[str, PaletteTheme] = {}
    wrong: dict[str, list[str]] = {}
    tables = {str(table.get("name", "")): table for table in files.values() if isinstance(table, dict)}
    for file, table in files.items():
        problems = [table] if isinstance(table, str) else []
        if isinstance(table, dict):
            theme = _theme(_extended(table, tables, problems), problems)
            themes[theme.name] = theme
        if problems:
            wrong[file] = problems
    return themes, wrong


def _word(table: dict[str, Any] | str, key: str) -> str | None:
    return str(table[key]) if isinstance(table, dict) and table.get(key) else None


def _extended(table: dict[str, Any], tables: Mapping[str, dict[str, Any]], problems: list[str]) -> dict[str, Any]:
    parent_name = table.get("extends", "")
    if not parent_name:
        return table
    parent = tables.get(str(parent_name))
    if parent is None or parent.get("extends"):
        problems.append(f'extends "{parent_name}", which is missing or extends another theme itself')
        return table
    merged = parent | table
    for part in ("widgets", "variables", "styles"):
        merged[part] = _table(parent, part, problems) | _table(table, part, problems)
    return merged


def _table(table: Mapping[str, Any], part: str, problems: list[str]) -> dict[str, str]:
    entries = table.get(part, {})
    if not isinstance(entries, dict):
        problems.append(f"{part} is not a table")
        return {}
    wrong = [name for name, value in entries.items() if not isinstance(value, str)]
    problems += [f"{part}.{name} is not a string" for name in wrong]
    return {name: value for name, value in entries.items() if name not in wrong}


def _theme(table: Mapping[str, Any], problems: list[str]) -> PaletteTheme:
    """Build a theme; what is wrong goes into `problems`, and then the theme is not to be used."""
    problems += [f"unknown key {key}" for key in sorted(set(table) - _KEYS)]
    name, dark = table.get("name"), table.get("dark", True)
    if not isinstance(name, str) or not name:
        problems.append("name is missing")
    if not isinstance(dark, bool):
        problems.append("dark must be true or false")
    base = _style(str(table.get("base", "")), "base", problems)
    styles = _table(table, "styles", problems)
    problems += [f"unknown style {style}" for style in sorted(set(styles) - set(STYLES))]
    problems += [f"style {style} is missing" for style in STYLES if style not in styles]
    spans: dict[str, Style | None] = {PLAIN: base or None}
    for style, text in styles.items():
        spans[style] = (base + _style(text, f"styles.{style}", problems)) or None
    colours = _table(table, "widgets", problems)
    problems += [f"unknown colour widgets.{colour}" for colour in sorted(set(colours) - set(_WIDGET_COLOURS))]
    _check_colours("widgets", colours, problems)
    if "primary" not in colours:
        problems.append("colour widgets.primary is missing")
    variables = _table(table, "variables", problems)
    _check_colours("variables", {key: text for key, text in variables.items() if not key.endswith("-style")}, problems)
    problems += [
        f'variables.{key} = "{text}" is not a text style'
        for key, text in variables.items()
        if key.endswith("-style") and not _TEXT_STYLES.issuperset(text.split())
    ]
    native = base.bgcolor is None
    terminal = "ansi_default" if native else None
    return PaletteTheme(
        name=str(name),
        description=str(table.get("description", "")),
        dark=bool(dark),
        ansi=native,
        **(dict.fromkeys(_GROUNDS, terminal) | {"primary": ""} | colours),
        boost=terminal,
        variables=({**_NATIVE_VARIABLES, **variables} if native else variables),
        spans=spans,
    )


def _style(text: str, where: str, problems: list[str]) -> Style:
    try:
        return Style.parse(text)
    except StyleSyntaxError as problem:
        problems.append(f'{where} = "{text}": {problem}')
        return Style()


def _check_colours(part: str, colours: Mapping[str, str], problems: list[str]) -> None:
    for name, text in colours.items():
        try:
            Color.parse(text)
        except ColorParseError:
            problems.append(f'{part}.{name} = "{text}" is not a colour')
