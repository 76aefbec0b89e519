"""`pgtop-tune bench list`: the profiles there are."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from pgtop_tune.cli.commands.bench.formats import Format, ProfilesDirectory


def list_profiles(
    profiles: ProfilesDirectory = None,
    format: Annotated[Format, typer.Option("--format", help="text, or one JSON array.")] = Format.TEXT,
) -> None:
    """Show the load profiles: ours, yours in ~/.config/pgtop-tune/profiles, and those of a directory.

    Examples: pgtop-tune bench list  ·  pgtop-tune bench list --profiles ./loads --format json
    """
    from pgtop_tune.bench.profiles import load_profiles, profile_directories
    from pgtop_tune.cli.output import say, tell, write_for_programs

    loaded = load_profiles(profile_directories(profiles))
    for problem in loaded.problems:
        tell(problem)
    rows: list[dict[str, Any]] = [
        {
            "name": each.name,
            "title": each.title,
            "dataset": each.dataset or None,
            "clients": each.clients(),
            "protocol": each.protocol,
            "scripts": [{"file": str(script.file), "weight": script.weight} for script in each.scripts],
            "builtin": each.builtin or None,
            "description": each.description,
        }
        for each in loaded.known.values()
    ]
    if format is Format.JSON:
        write_for_programs()
        say(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    head: dict[str, Any] = {
        "name": "profile",
        "dataset": "data set",
        "clients": "clients",
        "description": "what it does",
    }
    shown = [head, *({name: row[name] or "-" for name in head} for row in rows)]
    widths = [max(len(str(row[name])) for row in shown) for name in ("name", "dataset", "clients")]
    for row in shown:
        name, dataset, clients = (str(row[each]) for each in ("name", "dataset", "clients"))
        cells = f"{name:<{widths[0]}}  {dataset:<{widths[1]}}  {clients:>{widths[2]}}"
        say(f"{cells}  {row['description']}")
