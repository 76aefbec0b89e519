"""`bench list` and `bench show`: the profiles, and the exact scripts and command of one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from pgtop_tune.base.tables import Table
from pgtop_tune.bench.argv import run_argv, shell_quoted
from pgtop_tune.bench.datasets.recognise import found_variables
from pgtop_tune.bench.locate import Pgbench, builtin_text, find_pgbench
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
from pgtop_tune.cli.commands.bench import ProfileRequest, ProfilesRequest
from pgtop_tune.cli.connections import ConnectionWords, opened, resolve_words
from pgtop_tune.cli.options import Format
from pgtop_tune.cli.output import say, say_json, say_list, tell
from pgtop_tune.cli.wiring import endpoint_of
from pgtop_tune.model.bench import LoadSpec


def _loaded(directory: Path | None) -> Profiles:
    loaded = load_profiles(profile_directories(directory))
    for problem in loaded.problems:
        tell(problem)
    return loaded


def say_profile(request: ProfileRequest) -> None:
    """Print a profile with its scripts and the command that runs it.

    Raises:
        LoadProblem: There is no such profile, a script is refused, or there is no pgbench.
    """
    profile = _loaded(request.profiles).get(request.name)
    pgbench = find_pgbench(request.pgbench)
    row = _profile_json(profile, pgbench, request.connection)
    if request.format is Format.JSON:
        say_json(row)
        return
    say(f"{profile.name}: {profile.title}")
    say(profile.description)
    say(f"data set {profile.dataset or 'none'} · {profile.clients()} clients · protocol {profile.protocol}")
    say(f"command  {row['command']}")
    for script in row["scripts"]:
        digest = f"  sha256 {script['sha256']}" if script["sha256"] else ""
        say(f"\n{script['name']}  weight {script['weight']}{digest}")
        for line in script["text"].rstrip("\n").split("\n"):
            say(f"    {line}")


def _profile_json(profile: Profile, pgbench: Pgbench, connection: ConnectionWords) -> dict[str, Any]:
    conninfo = resolve_words(connection)
    # Without a database, names in capitals stand for the numbers of its data set.
    variables = {name: name.upper() for name in profile.from_dataset}
    if connection.database and profile.from_dataset:
        variables = asyncio.run(_dataset_variables(connection, profile.dataset))
    spec = LoadSpec(profile=profile.name, clients=profile.clients(), protocol=profile.protocol)
    spec = with_variables(spec, profile, variables)
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


async def _dataset_variables(connection: ConnectionWords, dataset: str) -> dict[str, str]:
    async with opened(connection) as (sql_session, _):
        return await found_variables(sql_session, dataset)


def _scripts(profile: Profile, pgbench: Pgbench) -> list[dict[str, Any]]:
    if profile.builtin:
        return [{"name": profile.builtin, "weight": 1, "sha256": None, "text": builtin_text(profile.builtin, pgbench)}]
    scripts = []
    for script in profile.scripts:
        read = read_script(script.file)
        check_script(read, allow_shell=profile.allow_shell)
        scripts.append({"name": str(read.file), "weight": script.weight, "sha256": read.sha256, "text": read.text})
    return scripts


def say_profiles(request: ProfilesRequest) -> None:
    """Print a line for each profile, or all of them as a JSON array."""
    profiles = _loaded(request.profiles).by_name.values()
    objects = [
        {
            "name": profile.name,
            "title": profile.title,
            "dataset": profile.dataset or None,
            "clients": profile.clients(),
            "protocol": profile.protocol,
            "scripts": [{"file": str(script.file), "weight": script.weight} for script in profile.scripts],
            "builtin": profile.builtin or None,
            "description": profile.description,
        }
        for profile in profiles
    ]
    rows = (
        (profile.name, profile.dataset or "-", str(profile.clients()), profile.description or "-")
        for profile in profiles
    )
    table = Table(("profile", "data set", "clients", "description"), tuple(rows), frozenset({2}))
    say_list(request.format, objects, table)
