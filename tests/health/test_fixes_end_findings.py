"""A fix ends its own finding: applied to the facts, the check does not find it again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pgtop_tune.health.check import Check, CheckFinding, Fix
from pgtop_tune.health.configured import row_with_value
from pgtop_tune.health.facts import Answers, CheckFacts
from pgtop_tune.health.questions import ConfiguredLine, StartFile
from pgtop_tune.health.registry import CHECKS
from pgtop_tune.health.rules import COUNTED_SINCE
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.postgres import Parameter
from tests.health import test_host_checks as host
from tests.health.test_server_checks import CASES as SERVER_CASES
from tests.support.health_facts import GIB, result, spoilt
from tests.support.server_facts import spoiled

BY_ID = {check.id: check for check in CHECKS}
SET = re.compile(r"""ALTER SYSTEM (?:RESET "?([\w.]+)"?|SET "?([\w.]+)"? = ('(?:[^']|'')*'|[^;]*));""")


def changes(fix: Fix) -> dict[str, str | None]:
    """Parameters that a fix sets; None for a reset."""
    return {
        reset or name: None if reset else value.strip("'").replace("''", "'")
        for reset, name, value in SET.findall(fix.do)
    }


def applied(facts: CheckFacts, fix: Fix) -> CheckFacts:
    """The facts after a fix and the restart that it may take."""
    wanted = changes(fix)
    frame = facts.frames[-1]
    assert not isinstance(frame.postgres, Unavailable)
    sample = frame.postgres.parameters
    assert not isinstance(sample, Unavailable)
    rows = {row.name: row for row in sample.parameters}

    def after(row: Parameter) -> Parameter:
        if row.name in wanted:
            value = wanted[row.name]
            return row_with_value(row, row.boot_val if value is None else value, "configuration file")
        if row.name == "shared_memory_size" and "shared_buffers" in wanted:
            freed_mb = (int(rows["shared_buffers"].setting) - int(after(rows["shared_buffers"]).setting)) // 128
            return row_with_value(row, f"{max(int(row.setting) - freed_mb, 0)}MB", row.source)
        return row

    def written(rows: object) -> object:
        """Lines of the files, and what of them is still named."""
        if not isinstance(rows, Answers):
            return rows
        lines = [(where, line) for where, line in rows if not isinstance(line, StartFile) or is_named(line)]
        return Answers(
            tuple((where, replace(line, next=wanted[line.name]) if is_set(line) else line) for where, line in lines),
            rows.databases,
        )

    def is_set(line: object) -> bool:
        return isinstance(line, ConfiguredLine) and line.name in wanted

    def is_named(file: StartFile) -> bool:
        return file.name not in wanted or file.part in (wanted[file.name] or "")

    answers = {name: written(rows) for name, rows in facts.answers.items()}
    changed = replace(sample, parameters=tuple(map(after, sample.parameters)))
    newest = replace(frame, postgres=replace(frame.postgres, parameters=changed))
    return replace(facts, frames=(*facts.frames[:-1], newest), answers=answers)


def again(check: Check, facts: CheckFacts) -> list[tuple[CheckFinding, CheckFinding]]:
    """Findings that their own fix leaves as they are, or makes worse, with what is found then."""
    left = []
    for finding in result(check, facts).findings:
        if finding.fix is None or not changes(finding.fix):
            continue
        # What has been counted stays until the counters are reset.
        if any(evidence.source == COUNTED_SINCE for evidence in finding.evidence):
            continue
        then = result(check, applied(facts, finding.fix)).findings
        left += [
            (finding, other)
            for other in then
            if other.subject == finding.subject and other.severity.rank >= finding.severity.rank
        ]
    return left


def cases() -> Iterator[Any]:
    for number, (id_, condition, _) in enumerate(SERVER_CASES):
        yield pytest.param(BY_ID[id_], spoiled(**condition), id=f"{id_}-{number}")
    for number, (id_, condition, *_) in enumerate(host.CASES):
        yield pytest.param(BY_ID[id_], spoilt(**condition), id=f"{id_}-host-{number}")


def test_each_case() -> None:
    left = {case.id: again(*case.values) for case in cases()}
    assert {id_: found_again for id_, found_again in left.items() if found_again} == {}


MEGABYTES = st.sampled_from([64, 128, 1024, 4096, 20 * 1024, 60 * 1024, 200 * 1024])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    ram_gib=st.sampled_from([4, 16, 24, 64, 256]),
    buffers_mb=MEGABYTES,
    work_mem_mb=st.sampled_from([1, 4, 32, 64, 1024, 8192]),
    temp_mb=st.sampled_from([8, 8, 512]),
    maintenance_mb=st.sampled_from([64, 512, 8192]),
    autovacuum_mb=st.sampled_from([-1, -1, 64, 8192]),
    connections=st.sampled_from([20, 100, 500, 5000]),
    multiplier=st.sampled_from(["1", "2", "8"]),
    pages=st.sampled_from(["on", "off"]),
)
def test_memory(
    ram_gib: int, buffers_mb: int, work_mem_mb: int, temp_mb: int, maintenance_mb: int, autovacuum_mb: int,
    connections: int, multiplier: str, pages: str,
) -> None:  # fmt: skip
    facts = spoilt(
        {
            "shared_buffers": f"{buffers_mb}MB", "shared_memory_size": f"{buffers_mb + 100}MB",
            "work_mem": f"{work_mem_mb}MB", "temp_buffers": f"{temp_mb}MB",
            "maintenance_work_mem": f"{maintenance_mb}MB", "max_connections": str(connections),
            "autovacuum_work_mem": "-1" if autovacuum_mb < 0 else f"{autovacuum_mb}MB",
            "hash_mem_multiplier": multiplier, "huge_pages": pages, "huge_pages_status": pages,
        },
        memory_bytes=ram_gib * GIB,
    )  # fmt: skip
    for check in CHECKS:
        if check.group == "memory":
            assert again(check, facts) == []
