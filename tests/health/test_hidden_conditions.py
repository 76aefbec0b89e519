"""Conditions that a check could pass over: behind a link, in another namespace, after the next start, in a map."""

from __future__ import annotations

import mmap
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace

from pgtop_tune.base.errors import ClusterProblem
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health.check import Severity
from pgtop_tune.health.judge import judge
from pgtop_tune.health.registry import chosen
from pgtop_tune.host.block_devices import ROOT
from pgtop_tune.host.local import LocalHost
from pgtop_tune.host.machine_setup import machine_details
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.host import FileSystemSample
from tests.support.health_facts import details, spoilt
from tests.support.processes import eventually
from tests.support.real_check import checked
from tests.support.servers import Servers, conninfo
from tests.support.standby import standby_of

MEMORY = Path("/dev/shm")


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A directory of a file system that is gone after a reboot."""
    if not MEMORY.is_dir():
        pytest.skip(f"no {MEMORY} here")
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="pgtop-test-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


class TestLinks:
    @pytest.mark.parametrize("major", [14, 18])
    def test_wal_that_a_link_leads_into_memory_is_found(
        self, make_server: Callable[..., Throwaway], in_memory: Path, major: int
    ) -> None:
        server = make_server(major, fsync="on")
        data, moved = Path(str(server.data_dir)), in_memory / "wal"
        server._end("fast")
        shutil.copytree(data / "pg_wal", moved)
        shutil.rmtree(data / "pg_wal")
        (data / "pg_wal").symlink_to(moved)
        owner = data.stat()
        for path in (moved, *moved.rglob("*")):
            os.chown(path, owner.st_uid, owner.st_gid)
        server._start()
        report = checked(server, "postgres", select=("DISK",))
        (finding,) = [found for check, found in report.findings if check.id == "DISK-03" and "tmpfs" in found.says]
        assert finding.severity is Severity.CRITICAL
        assert finding.says.startswith("wal on tmpfs")

    def test_a_data_directory_and_a_directory_above_it_are_followed_to_their_mounts(self, tmp_path: Path) -> None:
        fast, far = tmp_path / "fast", tmp_path / "far"
        (fast / "17/main").mkdir(parents=True)
        far.mkdir()
        (tmp_path / "var").symlink_to("fast/17")
        (fast / "17/main/pg_wal").symlink_to(f"../../../var/../../{far.name}")
        (fast / "17/circle").symlink_to("circle")
        root = tmp_path / "root"
        (root / "proc/self").mkdir(parents=True)
        (root / "proc/self/mountinfo").write_text(
            "22 1 259:1 / / rw,relatime - ext4 /dev/vda1 rw\n"
            f"23 22 259:2 / {fast} rw,noatime - ext4 /dev/vdb1 rw,nobarrier\n"
            f"24 22 259:3 / {far} rw,noatime - xfs /dev/vdc1 rw\n"
        )
        data = f"{tmp_path}/var/main"
        found = machine_details(root, [], {"data": data, "wal": f"{data}/pg_wal", "temp": f"{fast}/17/circle"}, None)
        assert {mount.point: mount.roles for mount in found.mounts} == {str(fast): ("data",), str(far): ("wal",)}
        assert found.unplaced == ("temp",)

    def test_a_part_of_the_data_directory_and_what_a_device_is_made_of(self, tmp_path: Path) -> None:
        data, memory, root = tmp_path / "data", tmp_path / "memory", tmp_path / "root"
        for directory in (data / "global", data / "pg_xact", memory / "base", root / "proc/self"):
            directory.mkdir(parents=True)
        (data / "base").symlink_to(memory / "base")
        (root / "sys/block/loop3/loop").mkdir(parents=True)
        (root / "sys/block/loop3/loop/backing_file").write_text(f"{memory}/image\n")
        (root / "proc/self/mountinfo").write_text(
            "22 1 259:1 / / rw,relatime - ext4 /dev/vda1 rw\n"
            f"23 22 0:40 / {memory} rw,relatime - tmpfs tmpfs rw\n"
            f"24 22 7:3 / {data}/global rw,relatime - ext4 /dev/loop3 rw\n"
            f"25 22 252:0 / {data}/pg_xact ro,relatime - ext4 /dev/zram0 ro\n"
        )
        found = machine_details(root, [], {"data": str(data)}, None)
        assert {mount.roles: (mount.kind, mount.kind_below) for mount in found.mounts} == {
            ("data",): ("ext4", ""),
            ("data/base",): ("tmpfs", ""),
            ("data/global",): ("ext4", "tmpfs"),
            ("data/pg_xact",): ("ext4", "ramfs"),
        }
        report = judge(chosen(("DISK-03", "DISK-04"), ()), replace(spoilt({}), machine=found))
        said = [f"{check.id} {finding.severity} {finding.says}" for check, finding in report.findings]
        assert said == [
            "DISK-03 critical data/base on tmpfs: kept in memory, gone after a reboot",
            "DISK-03 critical data/global on ext4 on a device backed by tmpfs: kept in memory, gone after a reboot",
            "DISK-03 critical data/pg_xact on ext4 on a device backed by ramfs: kept in memory, gone after a reboot",
            f"DISK-04 critical {data}/pg_xact is read-only: the server can write neither WAL nor pages there",
        ]

    @pytest.mark.root
    def test_the_mounts_are_those_of_the_servers_process(self, tmp_path: Path) -> None:
        # Its pg_wal is a link of its own namespace, to a file system that only this has.
        (tmp_path / "data").mkdir()
        (tmp_path / "own").mkdir()
        script = (
            "mount -t tmpfs own own && mkdir own/wal && mount -t tmpfs -o noatime wal own/wal"
            ' && mount -t tmpfs data data && ln -s "$PWD/own/wal" data/pg_wal && echo made && exec sleep 60'
        )
        child = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", script], cwd=tmp_path, stdout=subprocess.PIPE, text=True
        )
        try:
            assert child.stdout is not None
            if child.stdout.readline() != "made\n":
                pytest.skip("no mounts can be made here")
            directories = {"data": f"{tmp_path}/data", "wal": f"{tmp_path}/data/pg_wal"}
            found = machine_details(ROOT, [], directories, child.pid)
            assert {mount.point: mount.roles for mount in found.mounts} == {
                f"{tmp_path}/data": ("data",),
                f"{tmp_path}/own/wal": ("wal",),
            }
            local = LocalHost(time.monotonic)
            local.set_server(child.pid)
            local.set_directories(f"{tmp_path}/data")
            space = local.sample(()).file_systems
            local.close()
            assert isinstance(space, FileSystemSample)
            assert {(each.mount, each.kind, each.roles) for each in space.file_systems} == {
                (f"{tmp_path}/data", "tmpfs", ("data",)),
                (f"{tmp_path}/own/wal", "tmpfs", ("wal",)),
            }
        finally:
            child.kill()
            child.wait()


@pytest.mark.parametrize("major", [14, 15])
def test_two_synchronous_standbys_are_counted_now_and_after_the_loss_of_one(
    make_server: Callable[..., Throwaway], servers: Servers, major: int, tmp_path: Path
) -> None:
    tool = servers.binaries(15).bin_dir / "pg_receivewal"
    if not tool.exists():
        pytest.skip("no pg_receivewal here")
    server = make_server(major)

    def said(names: str) -> str:
        with psycopg.connect(conninfo(server), autocommit=True) as admin:
            admin.execute("SET synchronous_commit = local")
            admin.execute(psycopg.sql.SQL("ALTER SYSTEM SET synchronous_standby_names = {}").format(names))
            admin.execute("SELECT pg_reload_conf()")
            named = "SELECT 1 FROM pg_stat_replication WHERE sync_state <> 'async' AND state = 'streaming'"
            assert eventually(lambda: admin.execute(named).fetchone() is not None)
        report = checked(server, "postgres", select=("REP-02",))
        return "; ".join(f"{finding.severity} {finding.says}" for _, finding in report.findings)

    standby = subprocess.Popen(
        [
            str(tool), f"--directory={tmp_path}", f"--host={server.socket_dir}", f"--port={server.port}",
            f"--username={server.user}", "--synchronous",
        ],
        env={**os.environ, "PGAPPNAME": "s1"},
    )  # fmt: skip
    try:
        assert said("FIRST 2 (s1, s2)").startswith("critical 1 of 2 synchronous standbys are connected: every commit")
        assert said("ANY 2 (s1, s2)").startswith("critical 1 of 2 synchronous standbys are connected: every commit")
        assert said("s1").startswith("warning if one synchronous standby is lost, every commit waits")
        standby.send_signal(signal.SIGSTOP)
        with psycopg.connect(conninfo(server)) as held, psycopg.connect(conninfo(server), autocommit=True) as admin:
            held.execute("CREATE TABLE held (a int)")
            commit = threading.Thread(target=held.commit)
            commit.start()
            waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            assert eventually(lambda: admin.execute(waits).fetchone() is not None)
            ((_, finding),) = checked(server, "postgres", "REP-02.seconds=0", select=("REP-02",)).findings
            assert finding.says.startswith(
                "1 commit waits although enough synchronous standbys are connected, the oldest for"
            )
            standby.send_signal(signal.SIGCONT)
            commit.join()
        with psycopg.connect(conninfo(server), autocommit=True) as admin:
            # pg_receivewal replays nothing: nobody gets that answer.
            admin.execute("ALTER SYSTEM SET synchronous_commit = remote_apply")
            admin.execute("SELECT pg_reload_conf()")
        assert said("s1").startswith("critical no synchronous standby is connected: every commit waits")
    finally:
        standby.terminate()
        standby.wait()


def test_a_replay_that_stands_still_is_found_before_a_commit_waits_for_it(
    make_server: Callable[..., Throwaway], servers: Servers
) -> None:
    server = make_server(18)
    standby = standby_of(server, make_server, "there", servers.binaries(18))
    is_over = threading.Event()

    def write() -> None:
        with psycopg.connect(conninfo(server), autocommit=True) as client:
            client.execute("SET synchronous_commit = local")
            while not is_over.is_set():
                client.execute("INSERT INTO written VALUES (1)")

    def said() -> list[str]:
        return [str(finding.subject) for _, finding in checked(server, "postgres", select=("REP-02",)).findings]

    with (
        psycopg.connect(conninfo(server), autocommit=True) as admin,
        psycopg.connect(conninfo(standby), autocommit=True) as reader,
    ):
        admin.execute("CREATE TABLE written (a int)")
        admin.execute("CREATE ROLE payer LOGIN")
        admin.execute("ALTER ROLE payer SET synchronous_commit = remote_apply")
        admin.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        admin.execute("SELECT pg_reload_conf()")
        is_sync = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync' AND state = 'streaming'"
        assert eventually(lambda: admin.execute(is_sync).fetchone() is not None)
        writer = threading.Thread(target=write)
        writer.start()
        try:
            assert said() == ["spare"]
            reader.execute("SELECT pg_wal_replay_pause()")
            assert eventually(lambda: "replay" in said())
            reader.execute("SELECT pg_wal_replay_resume()")
            assert eventually(lambda: said() == ["spare"])
        finally:
            is_over.set()
            writer.join()


class TestMaps:
    """Who becomes whom by pg_ident.conf."""

    @pytest.mark.parametrize("major", [14, 15, 18])
    def test_accounts_that_a_map_makes_superusers_are_found(
        self, make_server: Callable[..., Throwaway], major: int
    ) -> None:
        server = make_server(major)
        data = Path(str(server.data_dir))
        with psycopg.connect(conninfo(server), autocommit=True) as admin:
            admin.execute("CREATE ROLE app LOGIN")
            # This session stays: rules are read as they are in the files, whether they are in force or not.
            rules = (
                "local all boss scram-sha-256",
                "local all all peer map=anyone",
                "host all all 0.0.0.0/0 ident map=far",
                "host all all ::1/128 ident map=loose",
                "local all all trust",
            )
            maps = (
                "# map account role",
                "anyone /^(.*)$ postgres",
                "anyone /^(.*)$ boss",
                "anyone /^(.*)$ \\1",
                'anyone "/^x"   app # ends anywhere',
                "far /.* postgres",
                "loose /^(admin|app)$ app",
                "loose /pg app",
                "unused /.* postgres",
                "anyone root postgres",
            )
            admin.execute("CREATE ROLE boss SUPERUSER LOGIN")
            (data / "pg_hba.conf").write_text("".join(f"{rule}\n" for rule in rules))
            (data / "pg_ident.conf").write_text("".join(f"{line}\n" for line in maps))
            report = checked(server, "postgres", select=("SEC-01", "SEC-15"))
        said = {(check.id, finding.severity.value, finding.says) for check, finding in report.findings}
        ours = {each for each in said if "pg_ident" in each[2]}
        assert ours == {
            (
                "SEC-15", "high",
                "line 2 of pg_ident.conf: any account may log in as superuser postgres",
            ),
            (
                "SEC-15", "warning",
                "line 5 of pg_ident.conf: each account whose name contains ^x may log in as app",
            ),
            (
                "SEC-01", "high",
                "line 6 of pg_ident.conf: any account may log in as superuser postgres",
            ),
            (
                "SEC-15", "warning",
                "line 8 of pg_ident.conf: each account whose name contains pg may log in as app",
            ),
        }  # fmt: skip

    def test_a_role_that_may_not_read_the_maps_is_told_so(self, make_server: Callable[..., Throwaway]) -> None:
        server = make_server(15)
        with psycopg.connect(conninfo(server), autocommit=True) as admin:
            admin.execute("CREATE ROLE watcher LOGIN")
            admin.execute("GRANT SELECT ON pg_hba_file_rules TO watcher")
            admin.execute("GRANT EXECUTE ON FUNCTION pg_hba_file_rules() TO watcher")
            rules = "local all watcher trust\nlocal all all peer map=anyone\n"
            (Path(str(server.data_dir)) / "pg_hba.conf").write_text(rules)
            report = checked(server, "postgres", select=("SEC-15",), user="watcher")
        assert [check.id for check, _ in report.findings] == ["SEC-15"]
        assert any("pg_ident_file_mappings" in why.reason for _, why in report.unknowns)

    @pytest.mark.parametrize("major", [15, 18])
    def test_patterns_groups_and_the_first_line_that_fits(
        self, make_server: Callable[..., Throwaway], major: int
    ) -> None:
        server = make_server(major)
        data = Path(str(server.data_dir))
        with psycopg.connect(conninfo(server), autocommit=True) as admin:
            for statement in (
                "CREATE ROLE boss SUPERUSER LOGIN", "CREATE ROLE outer_group", "CREATE ROLE inner_group",
                "GRANT outer_group TO inner_group", "GRANT inner_group TO boss",
            ):  # fmt: skip
                admin.execute(statement.encode())
            # Each for a database of its own: the first line that fits a connection is the one.
            rules = (
                "local postgres postgres trust",
                "local letters all peer map=letters",
                "local either all peer map=either",
                "local group all peer map=group",
                "local self all peer map=self",
                "host refused all 10.0.0.0/8 reject",
                "host refused all 10.1.0.0/16 trust",
                "host refused all 10.2.0.0/16 ident map=letters",
                "host own all ::ffff:127.0.0.1/128 trust",
                "local all all scram-sha-256",
                "local postgres all peer map=letters",
                "local replication all peer map=copies",
            )
            maps = (
                "letters /^[a-z]+$ boss",
                "either /^admin|dba$ boss",
                "group /^\\w+$ +outer_group",
                "self /.* +boss",
                "copies /^(.*)$ boss",
            )
            (data / "pg_hba.conf").write_text("".join(f"{rule}\n" for rule in rules))
            (data / "pg_ident.conf").write_text("".join(f"{line}\n" for line in maps))
            report = checked(server, "postgres", select=("SEC-01", "SEC-13", "SEC-15"))
        said = [finding.says for _, finding in report.findings]
        mapped = {text.split(" ", 4)[1]: text for text in said if "pg_ident" in text}
        groups = {"3", "4"} if major >= 16 else set()
        # Before 16 a group is a name as any other.
        assert {line for line, text in mapped.items() if text.endswith("superuser boss")} == {"1", "2", "5", *groups}
        assert "each account whose name contains ^admin|dba$" in mapped["2"]
        (trust,) = [text for text in said if "trusts this machine" in text or "trust this machine" in text]
        assert trust.startswith("2 lines of pg_hba.conf")
        assert not [text for text in said if "10.1.0.0" in text or "10.2.0.0" in text]
        (passwordless,) = [text for text in said if "no password" in text]
        assert passwordless.endswith("(boss): line 9 of pg_hba.conf lets anyone log in as this role")

    def test_sockets_of_one_account_and_lines_for_one_role(self, make_server: Callable[..., Throwaway]) -> None:
        server = make_server(18, unix_socket_permissions="0700")
        data = Path(str(server.data_dir))
        (data / "pg_hba.conf").write_text("local all all trust\n")
        assert not checked(server, "postgres", select=("SEC-15",)).findings
        (data / "pg_hba.conf").write_text("local all all trust\nhost all app 127.0.0.1/32 trust\n")
        ((_, finding),) = checked(server, "postgres", select=("SEC-15",)).findings
        assert finding.says.endswith("programs may log in as app")


class TestNextStart:
    """Values that a reload accepts."""

    @pytest.mark.parametrize("major", [14, 18])
    def test_what_waits_for_a_restart_is_judged_as_well(
        self, make_server: Callable[..., Throwaway], major: int
    ) -> None:
        server = make_server(major)

        def said(*values: str) -> list[str]:
            with psycopg.connect(conninfo(server), autocommit=True) as admin:
                for value in ("RESET ALL", *(f"SET {value}" for value in values)):
                    admin.execute(f"ALTER SYSTEM {value}".encode())
                admin.execute("SELECT pg_reload_conf()")
            report = checked(server, "postgres", select=("MEM", "ARC-01", "CON-02", "PLAN-05", "SEC-15"))
            late = [(check.id, each) for check, each in report.findings if each.says.startswith("at the next start: ")]
            for _, finding in late:
                seen = {evidence.says for evidence in finding.evidence}
                assert seen >= {f"{value} at the next start".replace("'", "") for value in values}
            return sorted(f"{each.severity} {check}" for check, each in late)

        assert said() == []
        # 4 TB: more than any machine that runs these tests.
        assert {"critical MEM-01", "high MEM-02"} <= set(said("shared_buffers = '4TB'"))
        assert {"critical MEM-01", "warning CON-02"} <= set(said("max_connections = '200000'"))
        assert said("wal_level = 'minimal'", "max_wal_senders = '0'") == ["warning ARC-01"]
        assert said("max_worker_processes = '2'") == ["warning PLAN-05", "warning PLAN-05"]
        assert said("unix_socket_permissions = '0777'") == []

    @pytest.mark.parametrize("major", [14, 18])
    def test_a_server_that_would_not_start_is_found_before(
        self, make_server: Callable[..., Throwaway], major: int
    ) -> None:
        server = make_server(major)
        data = Path(str(server.data_dir))

        def said(*statements: str) -> list[str]:
            with psycopg.connect(conninfo(server), autocommit=True) as admin:
                for statement in statements:
                    admin.execute(statement.encode())
            report = checked(server, "postgres", select=("CFG-11", "OS"))
            assert not [why for check, why in report.unknowns if check.id == "CFG-11"]
            return [f"{each.severity} {each.says}" for check, each in report.findings if check.id == "CFG-11"]

        assert said() == []
        # Those of now are no news, and a value that is fine is none either.
        assert said("ALTER SYSTEM SET max_connections = 50", "SELECT pg_reload_conf()") == []
        (large,) = said("ALTER SYSTEM SET shared_buffers = '4000GB'", "SELECT pg_reload_conf()")
        assert large.startswith("critical the server does not start again: the server needs 4.02 TB of shared memory")
        report = checked(server, "postgres", select=("CFG-11", "OS"))
        (fix,) = [finding.fix for check, finding in report.findings if check.id == "CFG-11"]
        assert fix is not None
        assert said(*fix.do.splitlines()) == []
        assert said(*fix.undo.splitlines()) == [large]
        (pages,) = said(
            "ALTER SYSTEM RESET shared_buffers", "ALTER SYSTEM SET huge_pages = on", "SELECT pg_reload_conf()"
        )
        assert pages.startswith("critical the server does not start again: the server needs ")
        assert "huge pages" in pages
        (wal,) = said(
            "ALTER SYSTEM RESET huge_pages", "ALTER SYSTEM SET wal_level = minimal", "SELECT pg_reload_conf()"
        )
        assert "max_wal_senders" in wal
        # A file that was edited is read by the next start, reloaded or not.
        with psycopg.connect(conninfo(server), autocommit=True) as admin:
            admin.execute("ALTER SYSTEM RESET wal_level")
        with (data / "postgresql.conf").open("a") as settings:
            settings.write("shared_preload_libraries = 'pg_stat_statements, nonexist'\n")
        assert said("CREATE ROLE app LOGIN", "ALTER ROLE app SET session_preload_libraries = 'auto_explain'") == [
            "critical the server does not start again: library nonexist of shared_preload_libraries is missing"
        ]
        both = said("ALTER ROLE app SET session_preload_libraries = 'elsewhere'")
        assert both[1] == (
            "high no session of role app can start: library elsewhere of session_preload_libraries is missing"
        )
        with pytest.raises(ClusterProblem):
            server.restart()

    @pytest.mark.parametrize("major", [14, 18])
    def test_files_that_make_the_next_start_another_one(
        self, make_server: Callable[..., Throwaway], major: int
    ) -> None:
        server = make_server(major)
        data = Path(str(server.data_dir))
        owner, rules, settings = data.stat(), data / "pg_hba.conf", data / "postgresql.conf"
        before = settings.read_text()

        def said(lines: str = "") -> list[str]:
            settings.write_text(f"{before}\n{lines}\n")
            with psycopg.connect(conninfo(server), autocommit=True) as admin:
                admin.execute("SELECT pg_reload_conf()")
            report = checked(server, "postgres", select=("CFG-02", "CFG-03", "CFG-11"))
            return [f"{check.id} {found.severity} {found.says}" for check, found in report.findings]

        # What the command line says wins over the file, as it does under Patroni; nonsense ends a start all the same.
        assert said("listen_addresses = '10.99.99.99'") == []
        assert len(said("listen_addresses = '*'\nport = many")) == 1
        (elsewhere,) = said("data_directory = '/nonexistent'")
        assert elsewhere.startswith('CFG-11 critical the server does not start again: data directory "/nonexistent"')
        (logs,) = said("logging_collector = on\nlog_directory = '/nonexistent/a/b'")
        assert "could not open log file" in logs
        for name, severity in (("recovery.conf", "critical"), ("standby.signal", "high"), ("backup_label", "high")):
            (data / name).touch()
            os.chown(data / name, owner.st_uid, owner.st_gid)
            (sign,) = said()
            assert sign.startswith(f"CFG-11 {severity} the data directory contains {name}: ")
            (data / name).unlink()
        rules.chmod(0)
        try:
            if os.geteuid() == 0:
                os.chown(rules, 0, 0)
            assert said() == [f"CFG-03 critical the server cannot read {rules}: it does not start again"]
        finally:
            os.chown(rules, owner.st_uid, owner.st_gid)
            rules.chmod(0o600)
        assert said() == []


@pytest.mark.parametrize("major", [15, 18])
def test_a_role_that_sees_not_all_parameters_passes_no_check_for_that(
    make_server: Callable[..., Throwaway], major: int
) -> None:
    server = make_server(
        major, log_filename="one.log", log_truncate_on_rotation="on", logging_collector="on",
        ssl_min_protocol_version="TLSv1",
    )  # fmt: skip
    with psycopg.connect(conninfo(server), autocommit=True) as admin:
        admin.execute("CREATE ROLE plain LOGIN")
        admin.execute("ALTER SYSTEM SET session_preload_libraries = 'auto_explain'")
        admin.execute("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements, auto_explain'")
        admin.execute("SELECT pg_reload_conf()")
    groups = ("CFG", "SEC", "LOG", "OBS", "MEM", "CON", "REP", "ARC")
    seen, plain = (checked(server, "postgres", select=groups, user=user) for user in ("postgres", "plain"))
    passed = {check.id for check, _ in seen.findings} - {check.id for check, _ in (*plain.findings, *plain.unknowns)}
    assert passed == set()
    found = {check.id for check, _ in seen.findings}
    assert {"CFG-01", "LOG-06", "SEC-10"} <= found


@pytest.mark.parametrize("major", [14, 18])
def test_what_archives_another_file_and_what_counts_for_nobody(
    make_server: Callable[..., Throwaway], major: int
) -> None:
    server = make_server(major, archive_mode="on", archive_command="cp /nowhere/%f /archive/%f")
    for database in ("postgres", "template1"):
        with psycopg.connect(conninfo(server, database), autocommit=True) as admin:
            admin.execute("DROP EXTENSION IF EXISTS pg_stat_statements")
    with psycopg.connect(conninfo(server), autocommit=True) as admin:
        # The name of a library has its place, or its end, as well.
        admin.execute("ALTER SYSTEM SET shared_preload_libraries = '$libdir/pg_stat_statements.so'")
    server.restart()
    report = checked(server, "postgres", select=("ARC-04", "OBS-02"))
    said = {check.id: finding for check, finding in report.findings}
    assert said["ARC-04"].says.endswith("does not contain %p, the file to archive, and copies another file")
    created = said["OBS-02"]
    assert "no database has its extension" in created.says
    assert created.fix is not None
    with psycopg.connect(conninfo(server), autocommit=True) as admin:
        admin.execute(created.fix.do.encode())
    assert not [check for check, _ in checked(server, "postgres", select=("OBS-02",)).findings]


@pytest.mark.parametrize("major", [15, 19])
def test_a_library_that_has_no_place_to_archive_to(make_server: Callable[..., Throwaway], major: int) -> None:
    server = make_server(major, archive_mode="on", archive_library="basic_archive")
    # The archiver only writes a warning about that, and no counter of failures.
    ((_, finding),) = checked(server, "postgres", select=("ARC-01", "ARC-02")).findings
    assert finding.says.startswith("archive_library is basic_archive, and basic_archive.archive_directory is empty")
    with (Path(str(server.data_dir)) / "postgresql.conf").open("a") as settings:
        settings.write(f"basic_archive.archive_directory = '{server.data_dir}'\n")
    assert not checked(server, "postgres", select=("ARC-01", "ARC-02")).findings


class TestBesideValues:
    """Conditions that no value shows."""

    @pytest.mark.parametrize("other", [14, 18])
    def test_a_library_of_another_major_is_found_without_loading_it(
        self, make_server: Callable[..., Throwaway], servers: Servers, other: int
    ) -> None:
        server = make_server(15)
        data = Path(str(server.data_dir))
        library = Path(str(servers.binaries(other).bin_dir)).parent / "lib"
        found = next(iter(sorted(library.rglob("auto_explain.so"))))
        shutil.copy(found, data / "foreign.so")
        with (data / "postgresql.conf").open("a") as settings:
            settings.write(f"shared_preload_libraries = '{data}/foreign'\n")
        ((_, finding),) = checked(server, "postgres", select=("CFG-11",)).findings
        assert finding.severity is Severity.CRITICAL
        assert finding.says.endswith(f"is built for PostgreSQL {other}")

    def test_a_library_in_place_of_fsync_is_found(self, tmp_path: Path) -> None:
        library = tmp_path / "libeatmydata.so.1"
        library.write_bytes(b"\0" * mmap.PAGESIZE)
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
            found = machine_details(ROOT, [], {}, os.getpid()).postmaster
        assert not isinstance(found, Unavailable)
        assert found.no_flushes == str(library)
        report = judge(chosen(("DUR-01",), ()), spoilt({"fsync": "on"}, machine=details(postmaster=found)))
        ((_, finding),) = report.findings
        assert (finding.severity, finding.subject) == (Severity.CRITICAL, "library")
        plain = machine_details(ROOT, [], {}, os.getpid()).postmaster
        assert not isinstance(plain, Unavailable)
        assert plain.no_flushes == ""

    def test_an_archive_in_memory_and_roles_that_are_not_counted_are_found(
        self, make_server: Callable[..., Throwaway], in_memory: Path
    ) -> None:
        server = make_server(
            18,
            archive_mode="on",
            archive_command=f"cp %p {in_memory}/%f",
            shared_preload_libraries="pg_stat_statements",
            archive_timeout="0",
        )
        with psycopg.connect(conninfo(server), autocommit=True) as admin:
            admin.execute("CREATE ROLE hidden LOGIN")
            admin.execute("ALTER ROLE hidden SET compute_query_id = off")
        report = checked(server, "postgres", select=("DISK-03", "OBS-02"))
        said = {f"{check.id} {finding.severity} {finding.says}" for check, finding in report.findings}
        assert any(text.startswith("DISK-03 critical") and "archive" in text and "tmpfs" in text for text in said)
        assert (
            "OBS-02 info compute_query_id is off for role hidden: pg_stat_statements counts none of its statements"
            in said
        )
