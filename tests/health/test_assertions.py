"""A server that was compiled with assertions is told from an ordinary one."""

from __future__ import annotations

import asyncio

import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health.check import Severity
from pgtop_tune.health.gather import gather
from pgtop_tune.health.judge import judge
from pgtop_tune.health.registry import chosen
from pgtop_tune.health.report import CheckOutcome, CheckResult
from tests.postgres.conftest import place
from tests.support.assertion_build import WHAT, assertion_build
from tests.support.quick_server import quick_server
from tests.support.servers import NotAvailable, Servers

FOUND = {"OBS-03"}


def looked(server: Throwaway) -> CheckResult:
    checks = chosen(tuple(FOUND), ())
    (result,) = judge(checks, asyncio.run(gather(place(server), checks))).results
    return result


@pytest.mark.long
def test_a_server_that_was_compiled_with_assertions(servers: Servers, server: Throwaway) -> None:
    assert looked(server).outcome is CheckOutcome.PASSED
    try:
        binaries = servers.sought(WHAT, assertion_build)
    except NotAvailable as problem:
        pytest.skip(f"no server {WHAT}: {problem}")
    with quick_server(binaries) as built:
        result = looked(built)
    assert result.severity is Severity.HIGH
    assert [finding.says for finding in result.findings] == [
        "the server was built with assertions: several times slower than a production build"
    ]
