"""`pgtop-tune bench list` and `bench show`: the profiles there are, and what one runs, to the letter."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgtop_tune.cli import options
from pgtop_tune.cli.commands.bench.shared import Format, ProfilesDirectory
from pgtop_tune.cli.connecting import ConnectionOptions, ConnectionWords

if TYPE_CHECKING:
    from pgtop_tune.bench.locate import Pgbench
    from pgtop_tune.bench.profiles import Profile


_SHOW_TIMEOUT_S = 10.0


def show(
    *,
    name: Annotated[str, typer.Argument(metavar="PROFILE", help="Name of the profile, from `bench list`.")],
    profiles: ProfilesDirectory = None,
    format: Annotated[Format, typer.Option("--format", help="text, or one JSON object.")] = Format.TEXT,
    pgbench: options.Pgbench = None,
    words: ConnectionOptions,
) -> None:
    """Show a profile: scripts with weight, text and hash, and the exact pgbench line.

    With a database (-d), fills in the numbers that scripts take from its data set; runs nothing.

    Examples: pgtop-tune bench show tpcb-like  ·  pgtop-tune bench show ticket-read -d bench --format json
    """
    from pgtop_tune.bench.locate import find_pgbench
    from pgtop_tune.bench.profiles import load_profiles, profile_directories
    from pgtop_tune.cli.output import say, tell, write_for_programs

    loaded = load_profiles(profile_directories(profiles))
    for problem in loaded.problems:
        tell(problem)
    profile = loaded.get(name)
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
    from pgtop_tune.bench.argv import run_argv, shell_quoted
    from pgtop_tune.bench.profiles import with_variables
    from pgtop_tune.bench.run_directory import base_directory, unused_name
    from pgtop_tune.cli.connecting import resolve_words
    from pgtop_tune.cli.wiring import endpoint_of
    from pgtop_tune.model.bench import LoadSpec

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
    from pgtop_tune.bench.datasets.recognise import found_variables
    from pgtop_tune.cli.commands.bench.shared import opened

    async with opened(words) as (sql_session, _):
        return await found_variables(sql_session, dataset)


def _scripts(profile: Profile, pgbench: Pgbench) -> list[dict[str, Any]]:
    from pgtop_tune.bench.scripts import check_script, read_script

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


# `pgtop-tune bench list`: the profiles there are.


def list_profiles(
    profiles: ProfilesDirectory = None,
    format: Annotated[Format, typer.Option("--format", help="text, or one JSON array.")] = Format.TEXT,
) -> None:
    """Show the load profiles: the built-in ones, yours in ~/.config/pgtop-tune/profiles, and those of --profiles.

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
