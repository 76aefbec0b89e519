"""Who is meant: the same server as psql would take, and no secret on the way."""

from __future__ import annotations

import pickle
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.secret import Secret
from pgtop_tune.postgres.server.conninfo import resolve


@pytest.fixture(autouse=True)
def nobody_s_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PGHOST", "PGPORT", "PGUSER", "PGDATABASE", "PGPASSWORD", "PGSERVICE", "PGOPTIONS", "PGSSLMODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "absent"))
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "absent"))
    monkeypatch.setenv("PGSYSCONFDIR", str(tmp_path))


def password_file(path: Path, *lines: str, mode: int = 0o600) -> str:
    path.write_text("".join(f"{line}\n" for line in lines))
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    ("target", "options", "described"),
    [
        ("", {"host": "db1", "port": "6432", "user": "bench"}, "bench@db1:6432/bench"),
        ("shop", {"host": "/run/pg", "user": "bench"}, "bench@/run/pg:5432/shop"),
        ("postgresql://u@h/d", {}, "u@h:5432/d"),
        ("postgresql://u@h:5/d?sslmode=require", {"host": "other", "port": "7"}, "u@h:5/d"),
        ("host=h dbname=d", {"user": "bench", "port": "7"}, "bench@h:7/d"),
        ("postgresql://u@a,b:6000/d", {}, "u@a:5432,b:6000/d"),
        ("postgresql://u@[2001:db8::1]:6000/d", {}, "u@[2001:db8::1]:6000/d"),
        ("postgresql://u@%2Frun%2Fpg:6000/d", {}, "u@/run/pg:6000/d"),
    ],
)
def test_words_on_the_command_line(target: str, options: dict[str, str], described: str) -> None:
    assert resolve(target, **options).describe() == described  # type: ignore[arg-type]


def test_variables_fill_in_what_was_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "db1")
    monkeypatch.setenv("PGPORT", "6432")
    monkeypatch.setenv("PGUSER", "bench")
    monkeypatch.setenv("PGPASSWORD", "from the variable")
    assert resolve().describe() == "bench@db1:6432/bench"
    monkeypatch.setenv("PGDATABASE", "shop")
    found = resolve(port="7")
    assert found.describe() == "bench@db1:7/shop"
    assert found.password == Secret("from the variable")
    assert resolve(password=Secret("typed")).password == Secret("typed")


def test_a_service_names_host_and_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    services = tmp_path / "services"
    services.write_text("[load]\nhost=db9\nport=6000\nuser=bench\nsslmode=require\n")
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    found = resolve("service=load dbname=shop")
    assert found.describe() == "bench@db9:6000/shop"
    assert found.keywords["sslmode"] == "require"
    monkeypatch.setenv("PGSERVICE", "load")
    assert resolve().describe() == "bench@db9:6000/bench"
    with pytest.raises(UsageProblem, match='definition of service "nope" not found'):
        resolve("service=nope")


def test_the_password_file_is_matched_as_libpq_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = password_file(
        tmp_path / "pgpass", "# who", r"db1:5432:*:bench:with\:colon", "db2:*:shop:*:second", "localhost:*:*:*:socket"
    )
    monkeypatch.setenv("PGPASSFILE", path)
    assert resolve("shop", host="db1", user="bench").password == Secret("with:colon")
    assert resolve("shop", host="db1", user="other").password is None
    both = resolve("shop", host="db1,db2", user="bench")
    assert [endpoint.password for endpoint in both.endpoints] == [Secret("with:colon"), Secret("second")]
    assert [each["password"] for each in both.as_asyncpg()] == ["with:colon", "second"]


def test_a_password_file_others_may_read_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PGPASSFILE", password_file(tmp_path / "pgpass", "*:*:*:*:open to all", mode=0o644))
    assert resolve(host="db1", user="bench").password is None
    assert "has group or world access" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("target", "port", "words"),
    [
        ("", "54x", "invalid"),
        ("", "70000", "invalid port number: 70000"),
        ("", "1,2", "could not match 2 port numbers to 1 hosts"),
        ("postgresql://h/d?sslmode=sometimes", "", 'invalid sslmode value: "sometimes"'),
        ("host=h colour=red", "", "colour"),
        ("host=", "0", "invalid"),
        ("a\0b", "", "not text"),
        ("a\udcffb", "", "not text"),
    ],
)
def test_words_that_cannot_be_meant(target: str, port: str, words: str) -> None:
    with pytest.raises(UsageProblem, match=words):
        resolve(target, port=port)


@pytest.mark.parametrize(
    "target",
    ["postgresql://u:hunt%zzer2@h/d", "password=hunt'er2 host='x", "postgresql://u:hunter2@h:port:6/d[", "hunter2@=x"],
)
def test_a_string_that_cannot_be_read_is_not_repeated_when_it_may_hold_a_password(target: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        resolve(target)
    assert "hunt" not in str(caught.value)
    assert caught.value.__suppress_context__


SECRETS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x17F), min_size=8, max_size=20).map("Œ{}".format)
"""Begin with a letter that no name of a variable or of a host has: none can be found in what is shown by chance."""


@given(password=SECRETS)
def test_a_password_comes_through_unchanged_and_shows_nowhere(password: str) -> None:
    found = resolve("dbname=d sslpassword=opensesame", host="h", user="u", password=Secret(password))
    assert found.as_psycopg()["password"] == password
    assert found.as_asyncpg()[0]["password"] == password
    for shown in (repr(found), found.describe(), str(found.for_pgbench()), str(found.endpoints)):
        assert password not in shown
        assert "opensesame" not in shown
    with pytest.raises(TypeError):
        pickle.dumps(found)


def test_pgbench_is_told_the_same_place_in_variables() -> None:
    told = resolve("postgresql://u:secret@a,b:6000/d?sslmode=require&options=-c%20work_mem%3D8MB").for_pgbench()
    assert told["PGHOST"] == "a,b"
    assert told["PGPORT"] == "5432,6000"
    assert told["PGUSER"] == "u"
    assert told["PGDATABASE"] == "d"
    assert told["PGSSLMODE"] == "require"
    assert told["PGOPTIONS"] == "-c work_mem=8MB"
    assert not any("secret" in value for value in told.values())


def test_asyncpg_is_left_nothing_to_look_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = resolve("postgresql://u@h/d?sslmode=disable&connect_timeout=7&options=-cwork_mem%3D8MB")
    monkeypatch.setenv("PGPASSFILE", password_file(tmp_path / "late", "*:*:*:*:late"))
    (arguments,) = found.as_asyncpg()
    assert arguments["timeout"] == 7
    assert arguments["server_settings"] == {"options": "-cwork_mem=8MB"}
    assert "sslmode=disable" in arguments["dsn"]
    assert not Path(arguments["passfile"]).exists()


def test_prefer_standby_asks_everybody_for_a_standby_first() -> None:
    attempts = resolve("postgresql://u@a,b/d?target_session_attrs=prefer-standby").as_asyncpg()
    assert [(each["host"], each["target_session_attrs"]) for each in attempts] == [
        ("a", "standby"), ("b", "standby"), ("a", "any"), ("b", "any"),
    ]  # fmt: skip


def test_an_address_beside_the_name_is_where_we_connect() -> None:
    found = resolve("host=db1 hostaddr=192.0.2.7 user=u dbname=d")
    assert found.describe() == "u@db1:5432/d"
    assert found.as_asyncpg()[0]["host"] == "192.0.2.7"
    assert found.as_psycopg()["hostaddr"] == "192.0.2.7"


def test_without_a_host_the_directory_that_has_the_socket_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("pgtop_tune.postgres.server.conninfo._SOCKET_DIRECTORIES", (str(tmp_path),))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / ".s.PGSQL.61234"))
        found = resolve("postgres", port="61234", user="u")
        assert found.describe() == f"u@{tmp_path}:61234/postgres"
        assert found.endpoints[0].is_socket
    absent = resolve("postgres", port="61235", user="u")
    assert str(tmp_path) in {endpoint.host for endpoint in absent.endpoints}
