"""One set of load options in every command that runs a load: the same words, the same load."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import typer
from msgspec import Struct
from typer.testing import CliRunner

from pgtop_tune.base.errors import LoadProblem, UsageProblem
from pgtop_tune.cli.commands.ab import AbRequest
from pgtop_tune.cli.commands.bench import RunRequest
from pgtop_tune.cli.commands.experiment import NoiseRequest
from pgtop_tune.cli.commands.tune import TuneRequest
from pgtop_tune.cli.options import LoadWords, register, typed_options
from pgtop_tune.cli.typed_load import TypedLoad, kept_scripts, typed_load
from pgtop_tune.model.bench import LoadSpec, ScriptChoice
from tests.support.accounts import require_root

COMMANDS = pytest.mark.parametrize("command", [RunRequest, AbRequest, TuneRequest, NoiseRequest])
WORDS = [
    "-c", "5", "-j", "2", "-R", "1.5k", "-L", "20", "-M", "extended", "--max-tries", "3", "--continue-on-error", "-C",
    "-D", "a=1", "-s", "7", "--random-seed", "9", "--allow-shell", "--pgbench-option=--exit-on-abort",
]  # fmt: skip


def typed(command: type[Struct], *words: str) -> LoadWords:
    """The load's options of a command line."""
    program, requests = typer.Typer(), list[Struct]()
    register(program, "command", command, requests.append)
    ran = CliRunner().invoke(program, words)
    assert requests, ran.output
    load = requests[0].load  # type: ignore[attr-defined]
    assert isinstance(load, LoadWords)
    return load


@COMMANDS
def test_the_same_words_are_the_same_load(command: type[Struct], tmp_path: Path) -> None:
    script = tmp_path / "x.sql"
    script.write_text("SELECT 1;\n")
    words = typed(command, *WORDS, "-f", f"{script}@3", "-f", str(script))
    with typed_load(words, None) as load:
        assert load == TypedLoad(
            clients=5,
            protocol="extended",
            allow_shell=True,
            spec=LoadSpec(
                threads=2, rate_per_s=1500.0, latency_limit_ms=20.0, max_tries=3, continue_on_error=True,
                connect_per_transaction=True, seed=9, variables=(("scale", "7"), ("a", "1")),
                further=("--exit-on-abort",), scripts=(ScriptChoice(str(script), 3), ScriptChoice(str(script))),
            ),
        )  # fmt: skip


@COMMANDS
@pytest.mark.parametrize(
    ("words", "profiles"),
    [
        ("", ("tpcb-like",)),
        ("-S", ("select-only",)),
        ("-b sel", ("select-only",)),
        ("-N", ("simple-update",)),
        ("--profile hot-row", ("hot-row",)),
        ("--profile a,b", ("a", "b")),
    ],
)
def test_a_load_is_a_profile(command: type[Struct], words: str, profiles: tuple[str, ...]) -> None:
    with typed_load(typed(command, *words.split()), None) as load:
        assert (load.profiles, load.spec) == (profiles, LoadSpec())


@COMMANDS
def test_several_of_pgbench_s_scripts_are_mixed(command: type[Struct]) -> None:
    with typed_load(typed(command, "-b", "tpcb-like@1", "-b", "select-only@9"), None) as load:
        files = [(Path(script.file).name, script.weight) for script in load.spec.scripts]
        assert files == [("tpcb-like.sql", 1), ("select-only.sql", 9)]
        assert all("pgbench_accounts" in Path(script.file).read_text() for script in load.spec.scripts)
    assert not Path(load.spec.scripts[0].file).exists()


def test_a_load_without_texts_of_its_own_makes_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with typed_load(typed(RunRequest, "--profile", "select-only"), None):
        assert not list(tmp_path.iterdir()), "a kill would leave it"


def test_words_that_contradict_each_other_are_refused() -> None:
    with (
        pytest.raises(UsageProblem, match="--profile contradicts"),
        typed_load(LoadWords(profile=["a"], select_only=True), None),
    ):
        pass
    with pytest.raises(UsageProblem, match="tune takes one --profile, not 2"):
        TypedLoad(profiles=("a", "b")).profile("tune")


def test_options_that_were_typed_are_named() -> None:
    assert typed_options(LoadWords(clients=4, select_only=True)) == ["--select-only", "--clients"]


def test_scripts_of_a_search_are_kept_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    script = tmp_path / "x.sql"
    script.write_text("SELECT 1;\n")
    [kept] = kept_scripts([ScriptChoice(str(script), 2)])
    script.write_text("SELECT 2;\n")
    assert (Path(kept.file).name, Path(kept.file).read_text(), kept.weight) == ("x.sql", "SELECT 1;\n", 2)


@pytest.mark.root
def test_scripts_are_not_kept_where_another_account_could_replace_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    script = tmp_path / "x.sql"
    script.write_text("SELECT 1;\n")
    [kept] = kept_scripts([ScriptChoice(str(script))])
    # One that our own account left open is closed by us: only the owner makes the difference.
    require_root()
    os.chown(Path(kept.file).parents[1], 65534, -1)
    with pytest.raises(LoadProblem, match="belongs to"):
        kept_scripts([ScriptChoice(str(script))])
