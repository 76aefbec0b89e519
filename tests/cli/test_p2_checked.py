"""The server of P2, as it should not be: checked, proposed for, applied, restarted, checked again, taken back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.host.block_devices import ROOT
from pgtop_tune.host.sysctl_files import PATH as DROP_IN
from tests.cli.runs import run
from tests.support.by_pg_ctl import auto_conf_of, by_pg_ctl
from tests.support.kernel import kernel, kernel_of_our_own, memory_in_one_piece
from tests.support.servers import conninfo

BAD: Final = {
    "shared_buffers": "16MB", "max_connections": "1000", "work_mem": "32MB", "maintenance_work_mem": "1GB",
    "effective_cache_size": "64MB", "wal_buffers": "64kB", "max_wal_size": "64MB", "min_wal_size": "32MB",
    "checkpoint_timeout": "30s", "checkpoint_completion_target": "0.1", "synchronous_commit": "off",
    "random_page_cost": "40", "effective_io_concurrency": "1", "max_worker_processes": "2",
    "max_parallel_workers": "64", "max_parallel_workers_per_gather": "100", "max_parallel_maintenance_workers": "100",
    "bgwriter_lru_maxpages": "0", "bgwriter_delay": "10s", "default_statistics_target": "1", "autovacuum": "off",
    "autovacuum_naptime": "1h", "commit_delay": "50000", "track_io_timing": "off", "log_statement": "all",
    "log_min_duration_statement": "0", "deadlock_timeout": "1min", "session_replication_role": "replica",
    "enable_seqscan": "off", "data_sync_retry": "on", "track_activities": "off", "huge_pages": "try",
}  # fmt: skip
"""P2's twenty parameters and others that only a check looks at."""
LEFT: Final = {
    "ARC-01": "an archive is for people to choose",
    "SEC-15": "initdb was told to trust this machine",
    "CFG-04": "the calendar",
    "CFG-05": "the calendar",
    "OS-08": "only the service that starts a server can protect it",
    "OS-01": "memory that the machine's programs have promised each other",
    "DISK-03": "a cluster that the test keeps in memory",
    "CPU-01": "a hypervisor that takes CPU time",
    "DISK-01": "room on the disk",
    "OS-05": "other programs that swap",
    "HUGE-04": "a kernel that takes no other word for its huge pages",
}
"""What may be left above info: it needs people, or hardware."""


@pytest.mark.root
@pytest.mark.long
def test_nothing_above_info_is_left_of_what_the_proposal_can_mend(
    make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    with kernel_of_our_own() as before, by_pg_ctl(make_server(18), **BAD) as server:
        memory_in_one_piece()
        stored = auto_conf_of(server)
        found = checked(server, tmp_path)
        spoiled = {each["fix"]["parameter"]["name"] for each in found if each["fix"] and each["fix"]["parameter"]}
        assert {"random_page_cost", "bgwriter_lru_maxpages", "max_wal_size", "session_replication_role"} <= spoiled
        made = run("advise", "--apply", "--yes", "--restart", "--seconds", "0", conninfo(server), home=tmp_path)
        if made.status and "huge pages" in made.err:
            pytest.skip("servers of other programs on this machine took the huge pages, or its memory is in pieces")
        assert made.status == 0, made.err
        left = [(each["check"], each["says"]) for each in checked(server, tmp_path) if each["check"] not in LEFT]
        assert left == []
        again = run("advise", "--apply", "--dry-run", "--seconds", "0", conninfo(server), home=tmp_path)
        named = {line.split(":")[0] for line in again.out.splitlines() if " → " in line}
        # The server that ran had promised the memory that strict accounting wants: it fits only now.
        assert named <= {"vm.overcommit_ratio", "vm.overcommit_memory"}
        undone = run("revert", "--last", "--restart", "-d", conninfo(server), home=tmp_path)
        assert undone.status == 0, undone.err
        assert auto_conf_of(server) == stored
        assert kernel() == before
        assert not (ROOT / DROP_IN).exists()
        # The server restarts before its pages are given back, and holds them until its next restart: HUGE-02.
        after = {each["check"] for each in checked(server, tmp_path)} - {"HUGE-02"}
        assert after - LEFT.keys() == {each["check"] for each in found} - LEFT.keys()


def checked(server: Throwaway, home: Path) -> list[dict[str, Any]]:
    """Findings above info."""
    report = json.loads(run("check", "--format", "json", "-d", conninfo(server), home=home).out)
    return [each for each in report["findings"] if each["severity"] != "info"]
