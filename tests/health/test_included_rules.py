"""Lines of pg_hba.conf are named with the file they stand in: since 16 it may include others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pgtop_tune.cluster.throwaway import Throwaway
from tests.support.real_check import checked


def test_a_line_of_an_included_file_is_named_with_its_file(fresh_server: Throwaway) -> None:
    rules = Path(str(fresh_server.data_dir)) / "pg_hba.conf"
    lines = rules.read_text()
    more = Path(str(fresh_server.data_dir)) / "more.conf"
    more.write_text("host all all 10.0.0.0/8 trust\n")
    more.chmod(0o644)
    rules.write_text(f"{lines}include more.conf\nhost all all 11.0.0.0/8 ident\n")
    report = checked(fresh_server, "postgres", select=("SEC-01", "CFG-03"))
    line = lines.count("\n") + 2
    assert {(check.id, finding.subject) for check, finding in report.findings} == {
        ("SEC-01", f"line 1 of {more}"), ("SEC-01", f"line {line} of pg_hba.conf"),
    }  # fmt: skip
    fixes = [finding.fix.do for _, finding in report.findings if finding.fix is not None]
    assert any(f"trust in line 1 of {more}" in each for each in fixes)


def test_a_file_that_is_included_and_not_there_is_an_error_of_its_line(make_server: Callable[..., Throwaway]) -> None:
    server = make_server(16)
    rules = Path(str(server.data_dir)) / "pg_hba.conf"
    lines = rules.read_text()
    rules.write_text(f"{lines}include missing.conf\n")
    (finding,) = [found for _, found in checked(server, "postgres", select=("CFG-03",)).findings]
    assert finding.subject == f"line {lines.count(chr(10)) + 1} of pg_hba.conf"
