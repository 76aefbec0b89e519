"""Words and exit statuses of the command line, without a server of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from operator import attrgetter
from pathlib import Path

import pytest

from pgtop_tune import __version__
from pgtop_tune.base.errors import PgtopError
from pgtop_tune.cli import app
from pgtop_tune.cli.commands import COMMANDS
from pgtop_tune.cli.habits import near_command, with_default_command
from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import OF_KEYS, ROOT, run
from tests.support.servers import conninfo


def parsed(words: list[str], monkeypatch: pytest.MonkeyPatch, field: str | None) -> object:
    """What the command line makes of an option; of words that it refuses, its sentence."""
    requests: list[object] = []
    monkeypatch.setattr(app, "_run_command", lambda _, request: requests.append(request))
    monkeypatch.setattr(app, "partial", lambda function, name: lambda request: app._run_command(name, request))
    with pytest.raises((SystemExit, PgtopError)) as ended:
        app._run(words, words[0])
    return attrgetter(field)(requests[0]) if field and requests else str(ended.value)


HEAVY = ("textual", "asyncpg", "psycopg", "psutil")


@pytest.mark.parametrize(
    ("typed", "run_as"),
    [
        ([], ["top"]),
        (["-h", "db1", "shop"], ["top", "-h", "db1", "shop"]),
        (["postgresql://db1/bench"], ["top", "postgresql://db1/bench"]),
        (["shop"], ["top", "shop"]),
        (["bench", "list"], ["bench", "list"]),
        (["-d", "bench"], ["top", "-d", "bench"]),
        (["top", "bench"], ["top", "bench"]),
        (["replay", "a.jsonl"], ["replay", "a.jsonl"]),
        (["--help"], ["--help"]),
        (["--version"], ["--version"]),
        (["-V"], ["-V"]),
        (["-?"], ["-?"]),
        (["version"], ["--version"]),
        (["help"], ["--help"]),
        (["help", "bench", "run"], ["bench", "run", "--help"]),
        (["bench", "help", "run"], ["bench", "run", "--help"]),
        (["help", "waits"], ["help", "waits"]),
        (["-d", "help"], ["top", "-d", "help"]),
        (["versions"], ["top", "versions"]),
        (["reports"], ["top", "reports"]),
        (["-d", "checks"], ["top", "-d", "checks"]),
    ],
)
def test_without_a_command_it_is_top(typed: list[str], run_as: list[str]) -> None:
    assert with_default_command(typed) == run_as


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("recrod", "record"), ("recod", "record"), ("records", "record"), ("repaly", "replay"), ("chekc", "check"),
        ("Check", "check"), ("paramters", "parameters"), ("bnech", "bench"), ("rset", "reset"), ("ste", "set"),
        *((database, "") for database in ("postgres", "shop", "app_db", "db", "pgbench", "bench2", "pet", "t")),
    ],
)  # fmt: skip
def test_a_word_may_be_a_slip_of_a_command(typed: str, meant: str) -> None:
    assert near_command(typed) == meant


def test_a_slip_is_tried_as_a_database_first(server: Throwaway, tmp_path: Path) -> None:
    place = ("-h", str(server.socket_dir), "-p", str(server.port), "-U", "postgres")
    ran = run("recrod", *place, home=tmp_path)
    assert (ran.status, ran.err) == (
        2,
        'pgtop-tune: there is no command and no database "recrod"\nhint: did you mean `pgtop-tune record`?\n',
    )
    ran = run("records", "-h", "/nowhere", home=tmp_path)
    assert (ran.status, "nothing is listening" in ran.err) == (3, True)
    ran = run("recrod", "-o", "a.jsonl", home=tmp_path)
    assert ran.err == "pgtop-tune: no such option -o\nhint: did you mean `pgtop-tune record`?\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["help", "recrod"], "no page of the guide called 'recrod'\nhint: did you mean `pgtop-tune record`?\n"),
        (["help", "wait"], "no page of the guide called 'wait'\nhint: did you mean the page waits?\n"),
        (["help", "NOSUCH"], "hint: `pgtop-tune help` lists the commands, `pgtop-tune help guide` the pages\n"),
        (["help", "../conventions"], "no page of the guide called '../conventions'\n"),
    ],
)
def test_help_for_nothing_there_is_names_what_is_near(words: list[str], said: str, tmp_path: Path) -> None:
    ran = run(*words, home=tmp_path)
    assert (ran.status, ran.out) == (2, "")
    assert said in ran.err


def test_a_page_of_the_guide_is_plain_text_on_a_pipe(tmp_path: Path) -> None:
    names = {line.split()[0] for line in run("help", "guide", home=tmp_path).out.splitlines()}
    assert names == {path.stem for path in (ROOT / "docs" / "guide").glob("*.md")}
    page = run("help", "waits", home=tmp_path).out
    assert "Where the time goes" in page
    assert "\x1b" not in page
    assert "images/" not in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["record", "--secs"], "no such option --secs\nhint: did you mean --seconds?"),
        (["top", "--nonsense"], "no such option --nonsense\nhint: see `pgtop-tune top --help`"),
        (["replay"], "FILE is missing\nhint: see `pgtop-tune replay --help`"),
        (["check", "--format", "jsn"], "--format: 'jsn' is not one of 'text', "),
        (
            ["experiment", "nonsense"],
            "no such command 'nonsense'. Did you mean 'noise'?\nhint: see `",
        ),
        (["baseline", "list", "--nonsense"], "no such option --nonsense\nhint: see `pgtop-tune baseline list --help`"),
    ],
)
def test_a_refused_word_is_one_sentence_and_a_hint(words: list[str], said: str, tmp_path: Path) -> None:
    ran = run(*words, home=tmp_path)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith(f"pgtop-tune: {said}")
    assert len(ran.err.splitlines()) == 2


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (["record", "--seconds", "300"], "seconds", 300.0),
        (["record", "--seconds", "1h30m"], "seconds", 5400.0),
        (["top", "-i", "500ms"], "interval", 0.5),
        (["top", "--interval", "2"], "interval", 2.0),
        (["bench", "run", "-T", "5m"], "load.seconds", 300),
        (["bench", "run", "-L", "20"], "load.latency_limit", 20.0),
        (["bench", "run", "-L", "0.5s"], "load.latency_limit", 500.0),
        (["bench", "run", "-R", "1.5k"], "load.rate", 1500.0),
        (["bench", "run", "--warmup", "2m"], "warm_up", 120),
        (["replay", "a.jsonl", "--start", "1m30s"], "start", 90.0),
        (["advise", "--seconds", "0"], "seconds", 0.0),
        (["record", "--seconds", "0.1s"], None, "-T: 0.1s is not at least 0.2 s"),
        (["record", "-i", "2m"], None, "-i: 2m is not at most 60 s"),
        (["bench", "run", "-T", "1.5s"], None, "-T: 1.5s is not a whole number of s"),
        (["bench", "run", "-T", "5x"], None, '-T: "5x" is not a duration'),
        (["bench", "run", "-R", "0"], None, "-R: 0 is not a rate above zero"),
        (["tune", "--resume", ""], None, "--resume is empty"),
        (["bench", "run", "--slo="], None, "--slo is empty"),
        (["bench", "run", "-D", "a=1", "-D", ""], None, "--define is empty"),
        (["experiment", "stop", ""], None, "[NAME] is empty"),
        (["revert", "--journal", ""], None, "--journal is empty"),
        (["revert", "--journal", "."], "journal", Path()),
        (["diff", "", "b"], "a", ""),
        (["top", "-h", "", "-d", "shop"], "connection.database", "shop"),
        (["top", "", "postgres"], "connection.target_user", "postgres"),
    ],
)
def test_times_and_rates_take_units(
    words: list[str], field: str | None, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert parsed(words, monkeypatch, field) == value or str(parsed(words, monkeypatch, field)).startswith(str(value))


def test_a_locale_of_ascii_gets_ascii(tmp_path: Path) -> None:
    ran = run("top", "--help", home=tmp_path, variables={"LC_ALL": "C"})
    assert ran.out.isascii()
    assert "+- Options -" in ran.out


def test_help_and_version_load_nothing_heavy() -> None:
    asked = [
        ["--help"],
        ["--version"],
        ["bench", "init", "--help"],
        *([*name.split(), "--help"] for name, *_ in COMMANDS),
    ]
    script = (
        "import json, sys\n"
        "from pgtop_tune.cli.app import main\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    sys.argv = ['pgtop-tune', *words]\n"
        "    try: main()\n"
        f"    except SystemExit as ended: print('loaded:', [m for m in {HEAVY!r} if m in sys.modules], ended.code)"
    )
    command = [sys.executable, "-c", script, json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=True)
    loaded = [line for line in done.stdout.splitlines() if line.startswith("loaded: ")]
    assert loaded == ["loaded: [] 0"] * len(asked)
    assert f"pgtop-tune {__version__}\n" in done.stdout


def test_sampling_without_a_screen_loads_no_textual(tmp_path: Path) -> None:
    script = "import sys, pgtop_tune.cli.wiring, pgtop_tune.cli.headless; print('textual' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("modules", "unwanted"),
    [
        (
            "pgtop_tune.cli.app, pgtop_tune.cli.commands.watch.screen, pgtop_tune.tui.terminal.run",
            ("pgtop_tune.diagnosis.diagnoser", *OF_KEYS),
        ),
        (
            "pgtop_tune.cli.commands.watch.session, pgtop_tune.cli.server_source",
            ("pgtop_tune.bench", "pgtop_tune.experiment"),
        ),
    ],
)
def test_the_first_data_waits_for_nothing_that_only_a_key_needs(modules: str, unwanted: tuple[str, ...]) -> None:
    script = f"import sys, {modules}; print([m for m in {unwanted!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("known", [True, False])
def test_what_draws_is_imported_while_it_is_not_known_where_the_server_is(known: bool) -> None:
    script = (
        "import os, sys\nfrom pgtop_tune.cli.commands.watch.screen import preload\n"
        f"preload(lambda: {known})\n"
        "print('asyncpg' in sys.modules, 'textual.app' in sys.modules, os.environ['TEXTUAL_FPS'])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == ["True", str(not known), "200"], "Textual reads its pace when it is imported"


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (["record", "-o", "{tmp}/a.jsonl", "-d", "a", "b", "c"], 2, "more databases or users than one: c is too many"),
        (["record", "-o", "{tmp}/a.jsonl", "service=missing"], 2, "missing"),
        (["record", "-o", "{tmp}/no/such/a.jsonl", "-h", "/nowhere"], 5, "cannot create"),
        (["replay", "{tmp}/none.jsonl"], 5, "cannot read"),
        (["replay", "--lines", "pyproject.toml"], 5, "not a recording"),
        (["revert", "-h", "{tmp}"], 3, "nothing is listening on this socket|No such file"),
        (["demo", "--headless", "--seconds", "3", "--pg-bin", "{tmp}"], 1, "initdb"),
        (["demo", "--headless", "--seconds", "3", "--pgbench", "{tmp}/pgbench"], 4, "pgbench"),
        (["demo", "--headless", "--profile", "no-such-load"], 4, "no-such-load"),
        (["record", "-o", "{tmp}/a.jsonl", "--seconds", "1", "-h", "127.0.0.1", "-p", "1"], 3, "never answered"),
        (["record", "-o", "{tmp}/a", "--seconds", "1", "-h", "no-such-host.invalid"], 3, "unknown host name"),
        (["-i", "0.01"], 2, "0.01"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_no_traceback(
    words: list[str], status: int, sentence: str, tmp_path: Path
) -> None:
    import re

    ran = run(*(word.format(tmp=tmp_path) for word in words), home=tmp_path)
    assert re.search(sentence, ran.err), ran.err
    assert "Traceback" not in ran.err
    assert ran.status == status


def test_a_broken_configuration_names_every_mistake(tmp_path: Path) -> None:
    from pgtop_tune.base.config import load_config
    from pgtop_tune.base.errors import UsageProblem

    path = tmp_path / "config.toml"
    path.write_text('theme = 3\ninterval = 0.01\ncolour = "red"\n')
    with pytest.raises(UsageProblem, match=r"unknown key 'colour'; theme: .*; interval: .*"):
        load_config(path)
    path.write_text("theme = \n")
    with pytest.raises(UsageProblem, match="is not TOML"):
        load_config(path)
    path.write_bytes(b'theme = "\xff"\n')
    with pytest.raises(UsageProblem, match=r"is not TOML: it is not UTF-8$"):
        load_config(path)
    path.write_text('theme = "light"\ninterval = 2\n[keys]\nquit = "q,f10"\n')
    config = load_config(path)
    assert (config.theme, config.interval, config.keys) == ("light", 2, {"quit": "q,f10"})
    assert load_config(tmp_path / "none.toml").theme == ""
    with pytest.raises(UsageProblem, match="Is a directory") as told:
        load_config(tmp_path)
    assert "permissions" not in told.value.hint


def test_wrong_passwords_and_databases_end_a_recording_with_the_servers_words(
    server: Throwaway, tmp_path: Path
) -> None:
    output = tmp_path / "a.jsonl"
    ran = run("record", "-o", str(output), "--seconds", "5", conninfo(server, "no_such"), home=tmp_path)
    assert ran.status == 3
    assert 'database "no_such" does not exist' in ran.err
    assert not output.exists()


def test_a_role_without_rights_records_what_it_may_see(server: Throwaway, tmp_path: Path) -> None:
    import psycopg

    output = tmp_path / "a.jsonl"
    target = conninfo(server).replace("user=postgres", "user=nobody_special")
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("CREATE ROLE nobody_special LOGIN")
        try:
            ran = run("record", "-o", str(output), "--seconds", "3", target, home=tmp_path)
        finally:
            connection.execute("DROP ROLE nobody_special")
    assert ran.status == 0, ran.err
    assert "Traceback" not in ran.err
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert len(lines) >= 3
