"""Words and options as fingers know them from psql, pgbench, top, git and kubectl."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import time
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cli import app, habits
from pgtop_tune.cli.assignments import as_assignments
from pgtop_tune.cli.commands import NAMES
from pgtop_tune.cli.commands.show import What
from pgtop_tune.cli.commands.show.moments import meant_otherwise
from pgtop_tune.cli.connections import ConnectionWords, _place, resolve_words
from pgtop_tune.cli.habits import take_general, with_default_command, with_near_command
from pgtop_tune.cli.typed_load import further_options
from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import run
from tests.support.servers import conninfo


@pytest.mark.parametrize(
    ("typed", "run_as"),
    [
        ("bench -i -s 10 db", "bench init -s 10 db"),
        ("bench -is 10 db", "bench init -s 10 db"),
        ("bench --initialize db", "bench init db"),
        ("bench db", "bench run db"),
        ("bench -c 2 -T 3 db", "bench run -c 2 -T 3 db"),
        ("bench -i 500ms -T 3 db", "bench run -i 500ms -T 3 db"),
        ("bench run db -- --exit-on-abort", "bench run db --pgbench-option=--exit-on-abort"),
        ("bench list", "bench list"),
        ("bench", "bench"),
        ("-d reports check", "check -d reports"),
        ("-h db1 -p5433 --username=op -w bench run -T 5", "bench run -T 5 -h db1 -p5433 --username=op -w"),
        ("-d reports -i 2", "top -d reports -i 2"),
        ("-h localhost -p 5432 bench", "top -h localhost -p 5432 bench"),
        ("completion zsh", "--show-completion zsh"),
        ("help -a", "--help"),
        ("completion -s fish", "--show-completion fish"),
        ("show --version", "--version"),
        ("bench run -V", "-V"),
        ("-h db1 --version", "--version"),
        ("bench run -- -V", "bench run --pgbench-option=-V"),
    ],
)
def test_words_of_other_programs_are_a_command_of_ours(typed: str, run_as: str) -> None:
    assert with_default_command(typed.split()) == run_as.split()


def test_a_recording_alone_is_replayed(tmp_path: Path) -> None:
    recording = tmp_path / "a.jsonl.gz"
    recording.touch()
    assert with_default_command([str(recording)]) == ["replay", str(recording)]
    assert with_default_command([f"{recording}x"])[0] == "top"


@pytest.mark.parametrize("words", ["2 5", "nosuch --help", "completion", "completion tcsh"])
def test_words_that_can_only_be_a_mistake_are_refused(words: str) -> None:
    with pytest.raises(UsageProblem):
        with_default_command(words.split())


def test_options_of_the_program_hold_before_and_behind_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGTOP_TUNE_CONFIG", "PGTOP_TUNE_LOG_FILE", "NO_COLOR"):
        monkeypatch.setenv(name, "")
    assert take_general(["--config", "a.toml", "top", "--log-file=b.log", "-d", "x"]) == ["top", "-d", "x"]
    assert (os.environ["PGTOP_TUNE_CONFIG"], os.environ["PGTOP_TUNE_LOG_FILE"]) == ("a.toml", "b.log")
    assert take_general(["check", "--config", "p.toml", "--no-color", "--", "--config"]) == [
        "check", "--config", "p.toml", "--", "--config",
    ]  # fmt: skip
    assert os.environ["NO_COLOR"] == "1"
    for words in (["experiment", "check", "P1"], ["-d", "check"]):
        assert take_general([*words, "--config", "a.toml"]) == words
    with pytest.raises(UsageProblem):
        take_general(["top", "--config"])


@pytest.mark.parametrize(
    ("words", "assignments"),
    [
        (["work_mem=8MB", "jit=off"], ["work_mem=8MB", "jit=off"]),
        (["work_mem", "8MB", "jit", "off"], ["work_mem=8MB", "jit=off"]),
        (["work_mem", "to", "8MB"], ["work_mem=8MB"]),
        (["work_mem", "=", "8MB"], ["work_mem=8MB"]),
        (["work_mem", "=8MB"], ["work_mem=8MB"]),
        (["work_mem to 8MB"], ["work_mem=8MB"]),
        (["work_mem = 8MB"], ["work_mem = 8MB"]),
        (["search_path", "to", "app,", "public"], ["search_path=app, public"]),
        (["archive_command", "=", "cp a=b"], ["archive_command=cp a=b"]),
        (["work_mem="], ["work_mem="]),
    ],
)
def test_a_value_is_assigned_in_four_ways(words: list[str], assignments: list[str]) -> None:
    assert as_assignments(words) == assignments


@pytest.mark.parametrize("words", [["work_mem"], ["work_mem", "to"], ["bench", "work_mem=8MB"]])
def test_a_name_without_a_value_is_refused(words: list[str]) -> None:
    with pytest.raises(UsageProblem, match="has no value"):
        as_assignments(words)


@pytest.mark.parametrize(
    ("hosts", "port", "place"),
    [
        ("[::1]", "", ("::1", "")),
        ("[::1]:5433", "", ("::1", "5433")),
        ("::1", "5433", ("::1", "5433")),
        ("db1:5433", "", ("db1", "5433")),
        ("db1:5433,db2", "", ("db1,db2", "5433,")),
        ("db1,db2", "6432", ("db1,db2", "6432")),
        ("/run/postgresql", "5433", ("/run/postgresql", "5433")),
        ("", "5433", ("", "5433")),
    ],
)
def test_a_host_may_have_brackets_and_a_port(hosts: str, port: str, place: tuple[str, str]) -> None:
    assert _place(hosts, port) == place


def test_a_port_twice_is_refused() -> None:
    with pytest.raises(UsageProblem):
        _place("db1:5433", "5433")


@pytest.mark.parametrize(
    ("words", "reached"),
    [
        (ConnectionWords(target="bench", target_user="op", host="db1"), ("bench", "op")),
        (ConnectionWords(target="op", database="bench", host="db1"), ("bench", "op")),
        (ConnectionWords(target="bench", user="op", host="db1"), ("bench", "op")),
    ],
)
def test_a_second_word_is_the_user_as_in_psql(words: ConnectionWords, reached: tuple[str, str]) -> None:
    resolved = resolve_words(words)
    assert (resolved.dbname, resolved.user) == reached


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("-l", "logs every transaction itself"),
        ("--aggregate-interval=5", "logs every transaction itself"),
        ("-c", "option of the command itself"),
        ("-c5", "option of the command itself"),
        ("--file=x.sql", "option of the command itself"),
        ("--fil=x.sql", "option of the command itself"),
        ("-vfx.sql", "option of the command itself"),
        ("-i", "creates tables"),
    ],
)
def test_what_pgtop_tune_sets_itself_is_not_passed_on(word: str, reason: str) -> None:
    assert further_options(["--exit-on-abort", "-v"]) == ("--exit-on-abort", "-v")
    with pytest.raises(UsageProblem, match=reason):
        further_options([word])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bench", "run", "-l"], "bench run takes no -l: pgtop-tune logs every transaction itself"),
        (["check", "-o", "json"], "-o takes a file, not the format json"),
        (["parameters", "--json", "--csv"], "--json and --csv contradict each other"),
        (["compare", "a", "b", "--json", "--format", "markdown"], "--json and --format markdown contradict each other"),
        (["record", "a.jsonl.gz"], "a.jsonl.gz stands where the database does"),
        (["-h"], "option '-h' requires an argument\nhint: -h is the host, as in psql"),
    ],
)
def test_what_is_meant_otherwise_is_told(words: list[str], said: str, tmp_path: Path) -> None:
    ran = run(*words, home=tmp_path)
    assert (ran.status, ran.out) == (2, "")
    assert said in ran.err


def test_a_word_of_another_program_means_a_command_that_there_is() -> None:
    assert {meant.split()[0] for meant in habits._MEANT.values()} <= {*NAMES, "--help"}
    assert NAMES.isdisjoint((*habits._MEANT, *habits._ELSEWHERE))


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        (["unset", "work_mem"], "did you mean `pgtop-tune reset`?"),
        (["SHOW", "SESSIONS"], "did you mean `pgtop-tune show`?"),
        (["show work_mem"], "did you mean `pgtop-tune show`?"),
        (["alter system set work_mem = '8MB'"], "did you mean `pgtop-tune set`?"),
        (["kill", "4711"], "in `pgtop-tune top`, c cancels"),
        (["get", "locks", "-o", "json"], "did you mean `pgtop-tune show locks`?"),
        (["get", "pods"], "did you mean `pgtop-tune show sessions`?"),
        (["reload"], "`set` reloads a server by itself"),
        (["vacuum"], "`psql -c` runs a statement"),
        (["bench", "rnu"], "did you mean `pgtop-tune bench run`?"),
        (["bench", "kill"], "theirs"),
        (["show", "kill"], "theirs"),
        (["my shop"], "theirs"),
        ([], "theirs"),
    ],
)
def test_a_word_of_another_program_is_told_what_it_is_here(typed: list[str], hint: str) -> None:
    assert with_near_command(UsageProblem("refused", "theirs"), typed).hint.startswith(hint)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("show sesions", "did you mean sessions?"),
        ("show all", "`pgtop-tune show parameters` has all parameters"),
        ("show --help=variables", habits.MISUSED["--help"]),
        ("show session", "did you mean sessions?"),
        ("show work_mem", "for a parameter: `pgtop-tune parameters work_mem`; `pgtop-tune help show`"),
        ("show sessions --format JSON", "did you mean json?"),
        ("show sessions --format tsv", "see `pgtop-tune show --help`"),
        ("show sessions --watch", "every five seconds: --watch 5s"),
        ("show sessions --col pid", "did you mean --columns?"),
        ("show sessions -o json", "redirect the output: > FILE; --format table|csv|json|jsonl"),
        ("show sessions --output=json", "redirect the output: > FILE; --format table|csv|json|jsonl"),
        ("show sessions -H", "--format table|csv|json|jsonl"),
        ("show sessions --html", "--format table|csv|json|jsonl"),
        ("record -t 5", "-T TIME is how long"),
        ("record --duration 5", "-T TIME is how long"),
        ("report --duration 5", "see `pgtop-tune report --help`"),
        ("top --refresh 2", "-i TIME is the time between two samples"),
        ("top -v", "-V is the version; --log-file FILE --log-level debug tells more"),
        ("bench run --show-script=tpcb-like", "pgtop-tune bench show tpcb-like"),
        ("bench run --exit", "an option of pgbench itself stands behind --: pgtop-tune bench run … -- --exit"),
        *((key, "") for key in habits._OPTIONS_MEANT if not key.startswith("-")),
    ],
)
def test_an_option_of_another_program_is_told_what_it_is_here(
    words: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "_run_command", lambda _, request: pytest.fail(f"ran {request}"))
    typed = words.split()
    with pytest.raises(UsageProblem) as refused:
        app._run(typed, typed[0])
    assert refused.value.hint == (hint or refused.value.hint)
    assert hint or "--help`" not in refused.value.hint, "its words name an option that the command does not have"


@pytest.mark.parametrize(
    ("subject", "target", "hint"),
    [
        ("io", "1", "--watch 1 repeats"),
        ("sessions", "pid,state", "columns are --columns pid,state; a database is -d"),
        ("sessions", "locks", "one kind of rows at a time: `pgtop-tune show locks`"),
        ("sessions", "shop", ""),
    ],
)
def test_a_word_that_names_no_database_of_show_is_told_what_it_may_be(subject: str, target: str, hint: str) -> None:
    assert meant_otherwise(What(subject), target) == hint


def test_lines_instead_of_a_screen(server: Throwaway, tmp_path: Path) -> None:
    ran = run("top", "-b", "-n", "2", "-i", "200ms", conninfo(server), home=tmp_path)
    heading, *lines = ran.out.splitlines()
    assert (ran.status, len(lines)) == (0, 2), ran.err
    assert heading.split()[:2] == ["time", "tps"]
    ran = run(conninfo(server, "nosuch"), home=tmp_path)
    assert ran.status == 3
    assert 'database "nosuch" does not exist' in ran.err


def test_parameters_by_name_and_pattern_as_json_and_csv(server: Throwaway, tmp_path: Path) -> None:
    words = ("parameters", "WORK_MEM", "wal_b*", conninfo(server))
    as_json = json.loads(run(*words, "--json", home=tmp_path).out)
    assert [row["name"] for row in as_json] == ["wal_block_size", "wal_buffers", "work_mem"]
    rows = list(csv.DictReader(io.StringIO(run(*words, "--csv", home=tmp_path).out)))
    assert [(row["name"], row["changed"], json.loads(row["moves_with"])) for row in rows] == [
        (row["name"], json.dumps(row["changed"]), row["moves_with"]) for row in as_json
    ]
    ran = run("parameters", "-d", conninfo(server), "wrk_mem", home=tmp_path)
    assert (ran.status, ran.err) == (
        2, "pgtop-tune: the server has no parameter wrk_mem\nhint: did you mean work_mem?\n",
    )  # fmt: skip


def test_the_name_of_a_report_decides_its_format(server: Throwaway, tmp_path: Path) -> None:
    begins = {"a.html": "<!doctype html>", "a.json": "{", "a.md": "# ", "a.txt": "", "a.sh": "#!"}
    for name, begin in begins.items():
        run("check", "--select", "MEM", "-o", str(tmp_path / name), conninfo(server), home=tmp_path)
        assert (tmp_path / name).read_text().startswith(begin), name
    run("check", "--select", "MEM", "--json", "-o", str(tmp_path / "b.html"), conninfo(server), home=tmp_path)
    assert json.loads((tmp_path / "b.html").read_text())


def test_a_recording_without_a_name_has_a_place(server: Throwaway, tmp_path: Path) -> None:
    ran = run("record", "-T", "1", "-q", conninfo(server), home=tmp_path)
    first, last = ran.err.splitlines()
    path = Path(first.removeprefix("recording into "))
    assert path.is_relative_to(tmp_path)
    assert path.exists()
    assert last.endswith(str(path))


def test_our_sessions_carry_the_operators_name_behind_ours(
    server: Throwaway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = resolve_words(ConnectionWords(target=f"{conninfo(server)} application_name=nightly"))
    assert named.session_name("pgtop-tune control") == "pgtop-tune control (nightly)"
    assert named.for_pgbench()["PGAPPNAME"] == "pgbench", "a load is known by this name"
    long = resolve_words(ConnectionWords(target=f"{conninfo(server)} application_name={'n' * 80}"))
    assert len(long.session_name("pgtop-tune")) == 63


def test_a_password_file_that_others_may_read_is_told_once(server: Throwaway, tmp_path: Path) -> None:
    passfile = tmp_path / "pass"
    passfile.write_text("*:*:*:*:secret\n")
    passfile.chmod(0o644)
    ran = run(
        "set", "work_mem", "8MB", "-n", "-d", conninfo(server), home=tmp_path, variables={"PGPASSFILE": str(passfile)}
    )
    assert ran.err.count("has group or world access; permissions should be u=rw (0600) or less") == 1
    assert ran.status == 0


def test_a_change_is_listed_for_scripts_and_reverted_dry(fresh_server: Throwaway, tmp_path: Path) -> None:
    place = ("-d", conninfo(fresh_server))
    assert run("set", "work_mem", "to", "7MB", *place, home=tmp_path).status == 0
    [change] = json.loads(run("revert", "--list", "--json", home=tmp_path).out)
    assert (change["name"], change["before"], change["value"], change["in_force"]) == ("work_mem", "4MB", "7MB", True)
    assert "work_mem: 4MB → 7MB" in run("revert", "--last", "--dry-run", home=tmp_path).out
    with psycopg.connect(conninfo(fresh_server)) as connection:
        assert connection.execute("SHOW work_mem").fetchone() == ("7MB",)
    named = json.loads(run("show", "parameters", "work_mem", "wal_l*", "--json", *place, home=tmp_path).out)
    assert [(row["name"], row["value"]) for row in named["rows"]][::2] == [
        ("wal_level", "replica"),
        ("work_mem", "7MB"),
    ]
    assert run("revert", *place, home=tmp_path).status == 0
    assert json.loads(run("revert", "--list", "--json", home=tmp_path).out) == []


@pytest.mark.parametrize(
    "words",
    [
        ("bench", "-i", "-s", "1", "--dry-run"),
        ("bench", "-S", "-T", "2", "--dry-run"),
        ("ab", "work_mem=4MB,8MB", "--dry-run"),
        ("tune", "--knobs", "work_mem", "--dry-run"),
        ("experiment", "run", "P1", "--dry-run", "--scale", "1", "--time", "10s", "--allow-unsafe"),
    ],
)
def test_a_dry_run_tells_and_changes_nothing(server: Throwaway, words: tuple[str, ...], tmp_path: Path) -> None:
    ran = run(*words, "-d", conninfo(server), home=tmp_path)
    assert ran.status == 0, ran.err
    assert ran.out
    with psycopg.connect(conninfo(server)) as connection:
        assert connection.execute("SELECT to_regclass('pgbench_accounts')").fetchone() == (None,)


def test_a_dry_run_of_a_search_lists_the_knobs_of_the_machine_too(server: Throwaway, tmp_path: Path) -> None:
    ran = run("tune", "--group", "wal", "--group", "machine", "--dry-run", "-d", conninfo(server), home=tmp_path)
    assert re.search(r"^wal_writer_delay = .* searched among", ran.out, re.MULTILINE), ran.err
    assert re.search(r"^vm\.\w+ ", ran.out + ran.err, re.MULTILINE)


def completed(words: str, server: Throwaway, home: Path, shell: str = "zsh") -> list[str]:
    """What a shell is offered for the last word."""
    count = len(words.split(" "))
    asked = {
        "_PGTOP_TUNE_COMPLETE": f"complete_{shell}",
        "PGHOST": str(server.socket_dir), "PGPORT": str(server.port), "PGUSER": server.user,
        "PGSERVICEFILE": str(home / "services"),
    }  # fmt: skip
    asked |= {"COMP_WORDS": words, "COMP_CWORD": str(count - 1)} if shell == "bash" else {"_TYPER_COMPLETE_ARGS": words}
    asked |= {"_TYPER_COMPLETE_FISH_ACTION": "get-args"} if shell == "fish" else {}
    return run(home=home, variables=asked).out.replace('"', " ").split()


def offers(wanted: str, words: str, server: Throwaway, home: Path, shell: str = "zsh") -> bool:
    """Whether a shell is offered a word; a busy machine may need more than the second that the server has."""
    until_s = time.monotonic() + 30
    while time.monotonic() < until_s:
        if any(wanted in word for word in completed(words, server, home, shell)):
            return True
    return False


@pytest.mark.parametrize(
    ("shell", "words", "offered"),
    [
        ("zsh", "pgtop-tune -d postg", "postgres"),
        ("zsh", "pgtop-tune check postg", "postgres"),
        ("zsh", "pgtop-tune chec", "check"),
        ("zsh", "pgtop-tune set shared_buff", "shared_buffers"),
        ("zsh", "pgtop-tune top --theme ansi-d", "ansi-dark"),
        ("zsh", "pgtop-tune bench show select-", "select-only"),
        ("zsh", "pgtop-tune check --select MEM-0", "MEM-01"),
        ("bash", "pgtop-tune -d postg", "postgres"),
        ("bash", "pgtop-tune bench show select-", "select-only"),
        ("fish", "pgtop-tune -d postg", "postgres"),
        ("fish", "pgtop-tune bench show select-", "select-only"),
    ],
)
def test_a_shell_completes_names(shell: str, words: str, offered: str, server: Throwaway, tmp_path: Path) -> None:
    assert offers(offered, words, server, tmp_path, shell)


def test_a_shell_completes_values_and_services(server: Throwaway, tmp_path: Path) -> None:
    (tmp_path / "services").write_text("[habits]\nhost=db1\n")
    assert offers("synchronous_commit=remote_apply", "pgtop-tune set synchronous_commit=remote_", server, tmp_path)
    # bash ends words at "=", and keeps them.
    assert offers("remote_apply", "pgtop-tune set synchronous_commit = remote_", server, tmp_path, "bash")
    assert "service=habits" in " ".join(completed("pgtop-tune service=hab", server, tmp_path))
    assert completed("pgtop-tune service = hab", server, tmp_path, "bash") == ["habits"]


def test_a_server_that_is_not_there_completes_nothing(server: Throwaway, tmp_path: Path) -> None:
    assert completed("pgtop-tune -h /nowhere -d postg", server, tmp_path, "bash") == []


def test_a_log_has_messages_and_no_secrets(server: Throwaway, tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    target = f"{conninfo(server)} password='hunter2 hunter3'"
    assert run("--log-file", str(log), "parameters", "work_mem", target, home=tmp_path).status == 0
    assert run("parameters", "wrk_mem", "-d", target, "--log-file", str(log), home=tmp_path).status == 2
    text = log.read_text()
    assert "info pgtop-tune parameters work_mem" in text
    assert "error pgtop-tune: the server has no parameter wrk_mem" in text
    assert "hunter" not in text
    assert log.stat().st_mode & 0o077 == 0
    ran = run("--log-file", str(log), "--log-level", "loud", "check", "--list", home=tmp_path)
    assert (ran.status, "'loud' is no log level" in ran.err) == (2, True)
    assert run("check", "--list", home=tmp_path, variables={"PGTOP_TUNE_LOG_FILE": ""}).status == 0
    planted = tmp_path / "planted"
    planted.symlink_to(tmp_path / "target")
    assert run("--log-file", str(planted), "check", "--list", home=tmp_path).status == 2
    assert not (tmp_path / "target").exists()


def test_frames_between_two_moments_are_replayed(server: Throwaway, tmp_path: Path) -> None:
    recording = tmp_path / "a.jsonl"
    run("record", "-q", "-T", "3", "-i", "200ms", "-o", str(recording), conninfo(server), home=tmp_path)
    whole = run("replay", str(recording), home=tmp_path).out.splitlines()
    part = run("replay", str(recording), "--since", "1s", "--until", "+1s", home=tmp_path).out.splitlines()
    assert 2 < len(part) < len(whole) - 4
    assert set(part) <= set(whole)
    ran = run("replay", str(recording), "--until", "2020-01-01", "--since", "1s", home=tmp_path)
    assert (ran.status, ran.err.startswith("pgtop-tune: 2020-01-01 is before 1s")) == (2, True)
