"""The server's log in other languages than English, real ones: of servers that write them, with locales made for it."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cluster.binaries import WHEEL, Binaries, available
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.events import LogTail
from pgtop_tune.postgres.log_entries import log_entries
from pgtop_tune.postgres.log_language import LogLanguage, catalogue_paths, read_catalogue
from pgtop_tune.postgres.reader import PostgresReader
from tests.postgres.conftest import place
from tests.support.quick_server import quick_server
from tests.support.servers import conninfo

DEADLINE_S = 60.0
RUSSIAN = "ru_RU.UTF-8"
OF_RUSSIAN = {
    "ERROR": "ОШИБКА",
    "LOG": "СООБЩЕНИЕ",
    "HINT:  ": "ПОДСКАЗКА:  ",
    "STATEMENT:  ": "ОПЕРАТОР:  ",
    "DETAIL:  ": "ПОДРОБНОСТИ:  ",
    "database system is ready": "система БД готова",
    "statement: %s": "оператор: %s",
}


@contextmanager
def server_in(language: str, **settings: str) -> Iterator[Throwaway]:
    """An installed server that writes this language."""
    binaries = next((each for each in available() if each.origin != WHEEL), None)
    if binaries is None:
        pytest.skip("no installed server: others come without translations")
    usual = Binaries.environment
    name, _, encoding = language.partition(".")
    with tempfile.TemporaryDirectory(prefix="locales-") as made, pytest.MonkeyPatch.context() as patched:
        Path(made).chmod(0o755)
        try:
            subprocess.run(["localedef", "-i", name, "-f", encoding, f"{made}/{language}"], check=True)
        except (FileNotFoundError, subprocess.CalledProcessError):
            pytest.skip("no localedef, or it has no sources of locales")
        patched.setattr(Binaries, "environment", lambda self: {**usual(self), "LOCPATH": made})
        with quick_server(binaries, lc_messages=language, logging_collector="on", **settings) as server:
            yield server


@pytest.fixture(scope="module")
def russian() -> Iterator[Throwaway]:
    with server_in(RUSSIAN, log_statement="all") as server:
        with psycopg.connect(conninfo(server), autocommit=True) as admin, pytest.raises(psycopg.Error) as refused:
            admin.execute("SELECT 'наша тайна' FROM nowhere")
        if "does not exist" in str(refused.value):
            pytest.skip("this server has no translations")
        yield server


async def look(
    server: Throwaway, user: str, is_whole: Callable[[LogTail | Unavailable], bool]
) -> LogTail | Unavailable:
    reader = PostgresReader(place(server, user=user), time.monotonic)
    await reader.connect()
    try:
        deadline = time.monotonic() + DEADLINE_S
        while not is_whole(tail := await reader.read(sections.server_log)):
            assert time.monotonic() < deadline, tail
            await asyncio.sleep(0.05)
        return tail
    finally:
        await reader.aclose()


def has_error(tail: LogTail | Unavailable) -> bool:
    return isinstance(tail, LogTail) and any(line.severity == "ERROR" for line in tail.lines)


async def test_the_words_of_the_server_s_own_catalogue_tell_its_lines(russian: Throwaway) -> None:
    tail = await look(russian, "postgres", has_error)
    assert isinstance(tail, LogTail)
    assert "тайна" not in repr(tail)
    levels = {line.message[:16]: line.severity for line in tail.lines}
    assert (levels['отношение "nowhe'], levels["sistema BD gotov"]) == ("ERROR", "LOG")
    assert tail.left_out > 0


async def test_a_role_that_may_not_read_the_catalogue_has_the_grants_or_the_codes(russian: Throwaway) -> None:
    with psycopg.connect(conninfo(russian), autocommit=True) as admin:
        admin.execute("CREATE ROLE looker LOGIN")
        why = await look(russian, "looker", lambda tail: isinstance(tail, Unavailable))
        assert isinstance(why, Unavailable)
        admin.execute(why.detail.split(": ", 1)[1].rsplit(" show it", 1)[0].encode())
        why = await look(russian, "looker", lambda tail: isinstance(tail, Unavailable))
        assert isinstance(why, Unavailable)
        assert RUSSIAN in why.detail
        assert "GRANT pg_read_server_files TO looker" in why.detail
        assert "log_line_prefix with %e before any %q" in why.detail
        admin.execute("ALTER SYSTEM SET log_line_prefix = '%m [%p] %l %q%u@%d %e '")
        admin.execute("SELECT pg_reload_conf()")
        deadline = time.monotonic() + DEADLINE_S
        while "%e" not in str(admin.execute("SHOW log_line_prefix").fetchone()):
            assert time.monotonic() < deadline
        with pytest.raises(psycopg.Error):
            admin.execute("SELECT 'ERROR:  тайна' FROM nowhere_else")
    tail = await look(russian, "looker", has_error)
    assert "nowhere_else" in repr(tail)
    assert "тайна" not in repr(tail)


@pytest.mark.long
@pytest.mark.parametrize("destination", ["stderr", "csvlog"])
@pytest.mark.parametrize("language", ["de_DE.UTF-8", "fr_FR.UTF-8", "ja_JP.UTF-8", "zh_CN.UTF-8", "ko_KR.UTF-8"])
async def test_every_language_has_the_lines_of_english(language: str, destination: str) -> None:
    with server_in(language, log_destination=destination) as server:
        with psycopg.connect(conninfo(server), autocommit=True) as admin:
            admin.execute("CHECKPOINT")
            with pytest.raises(psycopg.Error):
                admin.execute("SELECT 'top secret' FROM nowhere")
        tail = await look(server, "postgres", has_error)
    assert isinstance(tail, LogTail)
    assert "top secret" not in repr(tail)
    # Processes outside of a database write "?" for each character where their locale is C: Chinese is too dense then.
    assert any(line.severity == "LOG" for line in tail.lines) or language[:2] == "zh"


@pytest.mark.long
async def test_a_line_of_a_session_in_a_legacy_encoding_is_read_in_it(russian: Throwaway) -> None:
    with psycopg.connect(conninfo(russian), autocommit=True) as admin:
        admin.execute("CREATE DATABASE old ENCODING 'WIN1251' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    with psycopg.connect(conninfo(russian, "old"), autocommit=True) as session, pytest.raises(psycopg.Error):
        session.execute('SELECT * FROM "таблица"')
    tail = await look(russian, "postgres", lambda tail: "таблица" in repr(tail))
    assert isinstance(tail, LogTail)
    assert "\ufffd" not in repr(tail)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"logging_collector": "on", "log_destination": "syslog"}, "log_destination is syslog"),
        ({"log_destination": "syslog"}, "log_destination is syslog"),
        ({"log_destination": "syslog,stderr"}, "logging_collector is off: the server logs to its stderr and to syslog"),
    ],
)
async def test_a_log_that_goes_to_syslog_is_not_called_a_collector_that_is_off(
    make_server: Callable[..., Throwaway], settings: dict[str, str], says: str
) -> None:
    why = await look(make_server(**settings), "postgres", lambda tail: isinstance(tail, Unavailable))
    assert isinstance(why, Unavailable)
    assert why.reason is Reason.SWITCHED_OFF
    assert why.detail.startswith(says)


LINES = """\
2026-11-20 [17] bench 42P01 ОШИБКА:  отношение не существует
2026-11-20 [17] bench 42P01 ПОДРОБНОСТИ:  ERROR:  тайна
2026-11-20 [17] bench 42P01 ОПЕРАТОР:  SELECT 'ERROR:  тайна'
\t, 'ERROR:  тайна'
2026-11-20 [17] bench 42P01 ОШИБКА:  и снова
2026-11-20 [17] bench 00000 СООБЩЕНИЕ:  оператор: SELECT 'тайна'
2026-11-20 [18] bench 01000 ПРЕДУПРЕЖДЕНИЕ:  осторожно
"""


def test_codes_tell_lines_whose_words_nobody_knows() -> None:
    found = log_entries("x.log", LINES.encode(), LogLanguage(line_prefix="%t [%p] %u %e "))
    assert [(entry.severity, entry.message) for entry in found.entries] == [
        ("ERROR", "отношение не существует"),
        ("ERROR", "и снова"),
        ("WARNING", "осторожно"),
    ]
    assert not found.is_foreign


@pytest.mark.parametrize("line_prefix", ["%t [%p] %u 42P01 ", "%m [%p] ", None, "%", "%q%q%e%e(", "%-5p%%"])
def test_without_codes_and_words_no_statement_is_quoted(line_prefix: str | None) -> None:
    foreign = LINES.replace("ERROR", "ОШИБКА")
    found = log_entries("x.log", foreign.encode(), LogLanguage(line_prefix=line_prefix))
    assert "тайна" not in repr(found)
    assert found.is_foreign


def test_csv_and_json_have_a_code_for_words_that_nobody_knows() -> None:
    csv = f"2026-11-20 22:57:22,a,b,1,,,1,,,,0,ОШИБКА,42P01,плохо,,,,,,SELECT тайна{',' * 6}\n"
    json = '{"error_severity": "ОШИБКА", "state_code": "42P01", "message": "плохо", "statement": "SELECT тайна"}\n'
    for file, line in (("x.csv", csv), ("x.json", json)):
        assert [(entry.severity, entry.message) for entry in log_entries(file, line.encode()).entries] == [
            ("ERROR", "плохо")
        ]


def test_a_catalogue_s_statement_is_never_about_the_server() -> None:
    text = (
        "[1] СООБЩЕНИЕ:  система БД готова\n[1] СООБЩЕНИЕ:  оператор: тайна\n"
        "[1] SOOBSHHENIE:  sistema BD gotova\n"
        "[1] ОШИБКА:  плохо\n[1] ПОДРОБНОСТИ:  мало\n[1] ОПЕРАТОР:  SELECT 'ОШИБКА:  тайна'\n"
    )
    found = log_entries("x", text.encode("cp1251"), LogLanguage(OF_RUSSIAN, encodings=["UTF8", "WIN1251", "KOI8R"]))
    assert [(entry.severity, entry.message) for entry in found.entries] == [
        ("LOG", "система БД готова"),
        ("LOG", "sistema BD gotova"),
        ("ERROR", "плохо DETAIL: мало"),
    ]


@pytest.mark.parametrize("content", [b"", b"\xde\x12\x04\x95", b"\xde\x12\x04\x95" + b"\xff" * 40, b"no catalogue" * 9])
def test_what_is_no_catalogue_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="catalogue"):
        read_catalogue(content)


def test_a_language_names_its_files_and_no_others() -> None:
    paths = catalogue_paths("/l", "sr_RS.UTF-8@latin", 17)
    assert [path.split("/")[2] for path in paths] == ["sr_RS@latin", "sr@latin", "sr_RS", "sr"]
    assert all(not catalogue_paths("/l", name, 17) for name in ("", "C", "C.UTF-8", "POSIX", "../../x", "a/b"))


def test_letters_that_are_question_marks_are_read_where_they_can_be_of_one_message_only() -> None:
    """As processes outside of a database write them in a C locale; words from the Korean and the Chinese catalogue."""
    ready = "database system is ready to accept connections"
    checkpoint = "checkpoint complete: wrote %d buffers (%.1f%%)"
    korean = {
        "LOG": "로그", "ERROR": "오류", "FATAL": "치명적오류", "HINT:  ": "힌트:  ", "DETAIL:  ": "상세정보:  ",
        ready: "이제 데이터베이스 서버로 접속할 수 있습니다",
        checkpoint: "체크포인트 완료: 버퍼 %2$.1f%%, %1$d개 씀",
        "could not fork: %m": "새 포크 실패: %m",
        "could not bind: %m": "새 묶기 실패: %m",
    }  # fmt: skip
    language = LogLanguage(korean, line_prefix="%m [%p] ")
    lines = (
        "??:  ?? ?????? ??? ??? ? ????",
        "??:  ????? ??: ?? 3.5%, 12? ?",
        "?????:  ? ?? ??: Cannot allocate memory",
        "??:  SELECT 'secret ?'",
    )
    log = "".join(f"2026-05-01 10:00:02.123 UTC [8] {line}\n" for line in lines)
    found = log_entries("server.log", log.encode(), language).entries
    assert [(entry.severity, entry.message) for entry in found] == [
        ("LOG", ready),
        ("LOG", "checkpoint complete: wrote 12 buffers (3.5%)"),
        ("FATAL", "? ?? ??: Cannot allocate memory"),
    ]
