"""The change journal: what it must never lose, and what it must never believe."""

from __future__ import annotations

import json
import os
import pwd
import stat
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgtop_tune.base.errors import JournalProblem
from pgtop_tune.changes.journal import Journal, ServerName, journals, path_for, read, read_all, retire
from pgtop_tune.changes.model.change import SYSTEM, ChangeState, HostChange, ParameterChange, Scope, ScopeKind
from pgtop_tune.changes.model.pending_set import SetOwner
from pgtop_tune.model.instance import Instance, ServerPlace
from pgtop_tune.process.process_key import ProcessKey
from tests.support.open_path import open_to_all

SERVER = ServerName("7710353833045171132-40dc2fd6", "bench@/run/postgresql:5432/shop")
TEXT = st.text(max_size=30)
CHANGES = st.builds(
    ParameterChange,
    id=st.sampled_from(["a", "b", "c", "d"]),
    at_ms=st.integers(0, 2**45),
    name=TEXT,
    value=st.none() | TEXT,
    shown_before=TEXT,
    auto_conf_before=st.none() | TEXT,
    source_before=TEXT,
    state=st.sampled_from(ChangeState),
    shown_after=TEXT,
    message=TEXT,
    scope=st.builds(Scope, kind=st.sampled_from(ScopeKind), role=TEXT, database=TEXT),
    set_id=TEXT,
    by=TEXT,
    reason=TEXT,
    kept=st.booleans(),
    until_ms=st.none() | st.integers(0, 2**45),
)

HOST_CHANGES = st.builds(
    HostChange,
    id=st.sampled_from(["a", "b", "x"]),
    at_ms=st.integers(0, 2**45),
    name=TEXT,
    path=TEXT,
    value=TEXT,
    value_before=TEXT,
    state=st.sampled_from(ChangeState),
    boot_id=TEXT,
    also_before=st.lists(st.tuples(TEXT, TEXT), max_size=2).map(tuple),
    drop_in=TEXT,
    drop_in_before=st.none() | st.binary(max_size=20).map(lambda content: content.decode("utf-8", "surrogateescape")),
    until_ms=st.none() | st.integers(0, 2**45),
)


def change(identity: str, state: ChangeState = ChangeState.INTENDED) -> ParameterChange:
    return ParameterChange(identity, 1, "work_mem", "64MB", "4MB", None, "default", state)


def folded(changes: list[ParameterChange]) -> tuple[ParameterChange, ...]:
    return tuple({each.id: each for each in changes}.values())


@given(changes=st.lists(CHANGES, max_size=6), data=st.data())
def test_a_crash_at_any_byte_loses_at_most_the_line_being_written(
    changes: list[ParameterChange], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as name:
        sizes = []
        with Journal(SERVER, Path(name)) as journal:
            sizes.append(journal.path.stat().st_size)
            for each in changes:
                journal.write(each)
                sizes.append(journal.path.stat().st_size)
        content = journal.path.read_bytes()
        cut = data.draw(st.integers(sizes[0], len(content)))
        journal.path.write_bytes(content[:cut])
        whole = sum(1 for size in sizes[1:] if size <= cut)
        text = read(journal.path)
        # A line that lacks nothing but its line break is whole: its checksum says so.
        assert text.changes in (folded(changes[:whole]), folded(changes[: whole + 1]))
        if cut not in sizes and text.changes == folded(changes[:whole]) != folded(changes[: whole + 1]):
            assert text.problems == (f"line {whole + 2} was cut short by a crash",)
        with Journal(SERVER, Path(name)) as journal:
            journal.write(change("after the crash"))
            assert journal.text().changes[-1].id == "after the crash"
            assert journal.text().changes[:-1] == text.changes


@given(changes=st.lists(CHANGES, min_size=1, max_size=4), data=st.data())
def test_a_flipped_byte_is_never_believed(changes: list[ParameterChange], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        with Journal(SERVER, Path(name)) as journal:
            start = journal.path.stat().st_size
            for each in changes:
                journal.write(each)
        content = bytearray(journal.path.read_bytes())
        place = data.draw(st.integers(start, len(content) - 1))
        content[place] ^= data.draw(st.integers(1, 255))
        journal.path.write_bytes(content)
        text = read(journal.path)
        assert set(text.changes) <= set(changes)


def test_the_last_word_on_a_change_wins_and_in_force_is_what_may_have_been_made(tmp_path: Path) -> None:
    with Journal(SERVER, tmp_path) as journal:
        for identity, states in {
            "made": [ChangeState.INTENDED, ChangeState.APPLIED],
            "undone": [ChangeState.INTENDED, ChangeState.APPLIED, ChangeState.REVERTED],
            "refused": [ChangeState.INTENDED, ChangeState.FAILED],
            "unknown": [ChangeState.INTENDED],
        }.items():
            for state in states:
                journal.write(change(identity, state))
        text = journal.text()
    assert [each.id for each in text.changes] == ["made", "undone", "refused", "unknown"]
    assert [each.id for each in text.in_force] == ["made", "unknown"]
    assert text.server == SERVER
    assert text.problems == ()


KEYS = st.builds(ProcessKey, pid=st.integers(1, 2**22), start_ticks=st.integers(0, 2**60), boot_id=TEXT, namespace=TEXT)
OWNERS = st.builds(
    SetOwner,
    set_id=st.sampled_from(["a", "b"]),
    by=TEXT,
    program=st.none() | KEYS,
    watchdog=st.none() | KEYS,
    trip_wires=st.lists(TEXT, max_size=3).map(tuple),
    with_restart=st.booleans(),
    left_alone=st.booleans(),
)


@given(owners=st.lists(OWNERS, max_size=5))
def test_the_last_owner_of_a_set_is_its_owner(owners: list[SetOwner]) -> None:
    with tempfile.TemporaryDirectory() as name:
        with Journal(SERVER, Path(name)) as journal:
            for owner in owners:
                journal.write(owner)
        text = read(journal.path)
    assert text.owners == {owner.set_id: owner for owner in owners}
    assert text.problems == ()


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    with Journal(SERVER, tmp_path / "journal") as journal:
        assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600
        assert stat.S_IMODE(journal.path.parent.stat().st_mode) == 0o700


def test_a_second_writer_is_refused_and_a_reader_is_not(tmp_path: Path) -> None:
    with Journal(SERVER, tmp_path) as journal:
        journal.write(change("a"))
        with pytest.raises(JournalProblem, match="another pgtop-tune"):
            Journal(SERVER, tmp_path, patience_s=0.0)
        assert [each.id for each in read(journal.path).changes] == ["a"]
    Journal(SERVER, tmp_path).close()


def test_a_link_put_in_its_place_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    path_for(SERVER.key, tmp_path).symlink_to(victim)
    with pytest.raises(JournalProblem, match="cannot be written"):
        Journal(SERVER, tmp_path, patience_s=0.0)
    assert victim.read_text() == "precious"


FULL_DISK = """
import resource, signal, sys
from msgspec.structs import replace
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.changes.test_journal import SERVER, change
from pgtop_tune.changes.journal import Journal
from pgtop_tune.base.errors import JournalProblem
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with Journal(SERVER, Path(sys.argv[1])) as journal:
    journal.write(change("before"))
    size = journal.path.stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, size + 20))
    try:
        journal.write(change("does not fit"))
    except JournalProblem as problem:
        print(problem.hint, journal.path.stat().st_size == size, [each.id for each in journal.text().changes])
"""


def test_a_disk_that_is_full_leaves_the_journal_as_it_was(tmp_path: Path) -> None:
    root = str(Path(__file__).resolve().parents[1])
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK.format(root=root), str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == "nothing was changed True ['before']"


def test_a_missing_journal_says_nothing_and_an_unreadable_one_is_a_problem(tmp_path: Path) -> None:
    assert read(path_for("nobody", tmp_path)).changes == ()
    path_for("directory", tmp_path).mkdir()
    with pytest.raises(JournalProblem, match="cannot be read"):
        read(path_for("directory", tmp_path))


@given(keys=st.lists(st.text(min_size=1, max_size=200), unique=True, max_size=10))
def test_every_server_has_a_file_of_its_own_inside_the_directory(keys: list[str]) -> None:
    directory = Path("/journal")
    paths = [path_for(key, directory) for key in keys]
    assert len(set(paths)) == len(keys)
    for path in paths:
        assert Path(os.path.normpath(path)).parent == directory
        assert len(path.name) < 150


def test_journals_are_found_again(tmp_path: Path) -> None:
    with Journal(SERVER, tmp_path) as journal, Journal(replace(SERVER, key="db1:5432"), tmp_path) as other:
        assert set(journals(tmp_path)) == {journal.path, other.path}


def test_a_journal_of_the_first_version_is_read_and_one_of_a_newer_version_as_far_as_it_is_known(
    tmp_path: Path,
) -> None:
    old = {
        "id": "a", "at_ms": 1, "name": "work_mem", "value": "64MB", "shown_before": "4MB", "auto_conf_before": None,
        "source_before": "default", "state": "applied", "shown_after": "64MB", "message": "",
    }  # fmt: skip
    newer = {**old, "id": "b", "scope": {"kind": "role", "role": "app", "database": ""}, "moon": "full"}
    unreadable = {**old, "id": "c", "scope": {"kind": "galaxy"}}
    path = tmp_path / "server.jsonl"
    lines = []
    for body in (old, newer, unreadable):
        text = json.dumps({"change": body}, sort_keys=True, separators=(",", ":"))
        lines.append(f'{{"crc32":"{zlib.crc32(text.encode()):08x}","body":{text}}}\n')
    path.write_text("".join(lines))
    first, second = read(path).changes
    assert (first.scope, first.set_id, first.kept) == (SYSTEM, "", True)
    assert second.scope == Scope(ScopeKind.ROLE, "app")
    assert read(path).problems == ("line 3 is damaged",)


@given(parameters=st.lists(CHANGES, max_size=3), host=st.lists(HOST_CHANGES, max_size=4))
def test_changes_of_the_operating_system_stand_beside_those_of_parameters_and_come_back_whole(
    parameters: list[ParameterChange], host: list[HostChange]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        with Journal(SERVER, Path(name)) as journal:
            for each in [*host, *parameters]:
                journal.write(each)
        text = read(journal.path)
    assert (text.changes, text.problems) == (folded(parameters), ())
    assert text.host_changes == tuple({each.id: each for each in host}.values())
    assert set(text.host_in_force) == {
        each for each in text.host_changes if each.state in (ChangeState.INTENDED, ChangeState.APPLIED)
    }


def test_the_place_of_a_server_is_read_as_it_was_written_and_the_last_one_counts(tmp_path: Path) -> None:
    old = ServerPlace("/run:5432", "/old", "pg_ctl")
    new = replace(
        old,
        data_directory="/srv/pg",
        restart=("systemctl", "restart", "pg.service"),
        start=("systemctl", "start", "pg.service"),
        uid=26,
        gid=26,
        environment=(("LANG", "C"), ("TZ", "UTC")),
        arguments=("-c", "port=5433"),
        copy="/var/x",
    )
    with Journal(SERVER, tmp_path) as journal:
        assert journal.text().server_place is None
        journal.write(old)
        journal.write(change("a"))
        journal.write(new)
        path = journal.path
    assert read(path).server_place == new
    assert read(path).problems == ()


def _a_pipe(path: Path) -> None:
    os.mkfifo(path)


def _a_link(path: Path) -> None:
    path.with_name("else").write_bytes(b"")
    path.symlink_to(path.with_name("else"))


def _writable(path: Path) -> None:
    path.write_bytes(b"")
    path.chmod(0o666)


def _anothers(path: Path) -> None:
    path.write_bytes(b"")
    os.chown(path, 65534, 65534)


def _in_a_directory_of_anothers(path: Path) -> None:
    _anothers(path)
    os.chown(path, 0, 0)
    os.chown(path.parent, 65534, 65534)


def _in_a_directory_for_all(path: Path) -> None:
    path.write_bytes(b"")
    path.parent.chmod(0o777)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (_a_pipe, "is not a regular file"),
        (_a_link, "is a link"),
        (_writable, "is writable by others"),
        pytest.param(_anothers, "belongs to nobody, but this process runs as root", marks=pytest.mark.root),
        pytest.param(
            _in_a_directory_of_anothers, "belongs to nobody, but this process runs as root", marks=pytest.mark.root
        ),
        (_in_a_directory_for_all, "is writable by others"),
    ],
)
def test_a_journal_that_others_could_have_written_is_not_obeyed(
    tmp_path: Path, made: Callable[[Path], None], said: str
) -> None:
    path = path_for(SERVER.key, tmp_path)
    made(path)
    with pytest.raises(JournalProblem, match=said) as caught:
        read(path)
    assert caught.value.hint
    with pytest.raises(JournalProblem):
        Journal(SERVER, tmp_path, patience_s=0.0)
    tmp_path.chmod(0o700)


def test_a_retired_journal_is_kept_and_counts_no_more(tmp_path: Path) -> None:
    for number in (1, 2):
        with Journal(SERVER, tmp_path) as journal:
            journal.write(change("a"))
            with pytest.raises(JournalProblem, match="another pgtop-tune"):
                retire(journal.path)
        kept = retire(journal.path)
        assert [each.id for each in read(kept).in_force] == ["a"]
        assert (journals(tmp_path), len(list(tmp_path.glob("*.retired")))) == ((), number)


@given(
    instance=st.builds(
        Instance,
        system_identifier=TEXT,
        started_us=st.integers(0, 2**52),
        in_recovery=st.booleans(),
        timeline=TEXT,
        data_directory=TEXT,
        written_s=st.none() | st.integers(0, 2**33),
        put_there_s=st.none() | st.integers(0, 2**33),
        altered_s=st.none() | st.integers(0, 2**33),
        machine=TEXT,
    )
)
def test_what_a_server_was_comes_back_whole_and_the_last_one_counts(instance: Instance) -> None:
    with tempfile.TemporaryDirectory() as name:
        with Journal(SERVER, Path(name)) as journal:
            assert journal.text().instance is None
            journal.write(Instance("another", 1))
            journal.write(instance)
        text = read(journal.path)
    assert (text.instance, text.problems) == (instance, ())


def refusals_of(uid: int, directory: Path) -> list[str]:
    """The problems and remedies that a process of another account has with a directory of journals."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(uid, uid, uid)
            found = [f"{each.message}\n{each.hint}" for each in read_all(directory).problems.values()]
            try:
                Journal(SERVER, directory).close()
            except JournalProblem as problem:
                found.append(f"{problem.message}\n{problem.hint}")
            os.write(writing, json.dumps(found).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answer:
        told: list[str] = json.loads(answer.read())
    os.waitpid(child, 0)
    return told


@pytest.mark.root
def test_a_directory_that_is_another_account_s_is_told_with_the_remedy(tmp_path: Path) -> None:
    owner = pwd.getpwnam("nobody")
    state, directory = tmp_path / "state", tmp_path / "state/journal"
    directory.mkdir(parents=True)
    open_to_all(tmp_path)
    state.chmod(0o700)
    remedy = f"sudo chown -R nobody: {state}"
    assert refusals_of(owner.pw_uid, directory) == [
        f"the change journals in {directory} cannot be read: {state} belongs to root\n{remedy}",
        f"the change journal {path_for(SERVER.key, directory)} cannot be written: {state} belongs to root\n{remedy}",
    ]
    os.chown(state, owner.pw_uid, owner.pw_gid)
    os.chown(directory, owner.pw_uid, owner.pw_gid)
    assert refusals_of(owner.pw_uid, directory) == []
    directory.chmod(0)
    reason = f"this user has no access to {directory}\nchmod u+rwX {directory}"
    words = f"the change journals in {directory} cannot be read: {reason}"
    assert refusals_of(owner.pw_uid, directory)[0] == words


def test_absence_refusal_and_emptiness_are_three_things(tmp_path: Path) -> None:
    assert journals(tmp_path / "absent") == ()
    (tmp_path / "empty").mkdir()
    assert read_all(tmp_path / "empty").problems == {}
    (tmp_path / "file").write_text("")
    (tmp_path / "nowhere").symlink_to("gone")
    for name, words in (("file", "Not a directory"), ("file/below", "Not a directory"), ("nowhere", "does not exist")):
        with pytest.raises(JournalProblem, match=words):
            journals(tmp_path / name)
        with pytest.raises(JournalProblem, match=words):
            read(path_for("key", tmp_path / name))
