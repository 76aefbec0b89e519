"""The profiles there are, and what one runs, to the letter."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

from pgtop_tune.bench.argv import run_argv, shell_quoted
from pgtop_tune.bench.datasets.recognise import found_variables
from pgtop_tune.bench.locate import Pgbench, find_pgbench
from pgtop_tune.bench.places import base_directory, unused_name
from pgtop_tune.bench.profiles import (
    Profile,
    Profiles,
    check_script,
    load_profiles,
    profile_directories,
    read_script,
    with_variables,
)
from pgtop_tune.cli.connecting import ConnectionWords, opened, resolve_words
from pgtop_tune.cli.options import Format
from pgtop_tune.cli.output import say, tell, write_for_programs
from pgtop_tune.cli.wiring import endpoint_of
from pgtop_tune.model.bench import LoadSpec

_SHOW_TIMEOUT_S = 10.0


def _loaded(directory: Path | None) -> Profiles:
    loaded = load_profiles(profile_directories(directory))
    for problem in loaded.problems:
        tell(problem)
    return loaded


def say_profile(
    name: str, directory: Path | None, format: Format, pgbench: Path | None, words: ConnectionWords
) -> None:
    """Print a profile with its scripts and the command that runs it.

    Args:
        directory: Of further profiles.
        words: Without a database, places of numbers are shown in their stead.

    Raises:
        LoadProblem: There is no such profile, a script is refused, or there is no pgbench.
    """
    profile = _loaded(directory).get(name)
    found = find_pgbench(pgbench)
    told = _told(profile, found, words)
    if format is Format.JSON:
        write_for_programs()
        say(json.dumps(told, ensure_ascii=False, indent=2))
        return
    say(f"{profile.name}: {profile.title}")
    say(profile.description)
    say(f"data set {profile.dataset or 'none'} · {profile.clients()} clients · protocol {profile.protocol}")
    say(f"command  {told['command']}")
    for script in told["scripts"]:
        digest = f"  sha256 {script['sha256']}" if script["sha256"] else ""
        say(f"\n{script['name']}  weight {script['weight']}{digest}")
        for line in script["text"].rstrip("\n").split("\n"):
            say(f"    {line}")


def _told(profile: Profile, pgbench: Pgbench, words: ConnectionWords) -> dict[str, Any]:
    conninfo = resolve_words(words)
    if words.database and profile.from_dataset:
        found = asyncio.run(_found(words, profile.dataset))
    else:
        # Nobody named a database: the place of the number is shown in its stead.
        found = {each: each.upper() for each in profile.from_dataset}
    spec = LoadSpec(profile=profile.name, clients=profile.clients(), protocol=profile.protocol)
    spec = with_variables(spec, profile, found)
    argv = run_argv(spec, profile, pgbench, endpoint_of(conninfo), unused_name(base_directory()))
    return {
        "name": profile.name,
        "title": profile.title,
        "description": profile.description,
        "dataset": profile.dataset or None,
        "clients": profile.clients(),
        "protocol": profile.protocol,
        "variables": dict(spec.variables),
        "scripts": _scripts(profile, pgbench),
        "command": shell_quoted(argv),
        "pgbench_version": pgbench.version,
    }


async def _found(words: ConnectionWords, dataset: str) -> dict[str, str]:
    async with opened(words) as (sql_session, _):
        return await found_variables(sql_session, dataset)


def _scripts(profile: Profile, pgbench: Pgbench) -> list[dict[str, Any]]:
    if profile.builtin:
        return [{"name": profile.builtin, "weight": 1, "sha256": None, "text": _builtin(profile.builtin, pgbench)}]
    shown = []
    for script in profile.scripts:
        read = read_script(script.file)
        check_script(read, allow_shell=profile.allow_shell)
        shown.append({"name": str(read.file), "weight": script.weight, "sha256": read.sha256, "text": read.text})
    return shown


def _builtin(name: str, pgbench: Pgbench) -> str:
    """The text of a script that is part of pgbench, as it shows it."""
    answer = subprocess.run(
        [str(pgbench.path), f"--show-script={name}"],
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        timeout=_SHOW_TIMEOUT_S,
        env=pgbench.environment(),
        check=False,
    )
    return (answer.stdout + answer.stderr).strip()


def say_profiles(directory: Path | None, format: Format) -> None:
    """Print a line for each profile, or all of them as a JSON array."""
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
        for each in _loaded(directory).by_name.values()
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
