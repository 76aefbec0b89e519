"""Programs say whether they take a setting before there is a cluster."""

from __future__ import annotations

import pytest

from pgtop_tune.cluster.binaries import SettingRefusal, parameter_names, setting_refusal
from tests.support.servers import MAJORS, NotAvailable, Servers


@pytest.mark.parametrize("major", MAJORS)
def test_each_major_tells_a_wrong_name_from_a_wrong_value(major: int, servers: Servers) -> None:
    try:
        programs = servers.binaries(major)
    except NotAvailable as problem:
        pytest.skip(str(problem))
    assert setting_refusal(programs, "work_mem", "8MB") is None
    assert setting_refusal(programs, "pg_stat_statements.max", "100") is None
    assert setting_refusal(programs, "log_line_prefix", "%m it's 'x' ") is None
    unknown = setting_refusal(programs, "work_meme", "8MB")
    assert unknown == SettingRefusal('unrecognized configuration parameter "work_meme"', unknown=True)
    unit = setting_refusal(programs, "work_mem", "8 MiB")
    assert unit is not None
    assert not unit.unknown
    assert unit.says.startswith('invalid value for parameter "work_mem": "8 MiB" HINT: Valid units')
    fixed = setting_refusal(programs, "block_size", "8192")
    assert fixed is not None
    assert "cannot be changed" in fixed.says
    assert {"work_mem", "shared_buffers", "max_wal_size"} <= set(parameter_names(programs))
