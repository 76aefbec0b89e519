"""Values that sessions of a load may not begin with."""

from __future__ import annotations

import pytest

from pgtop_tune.advice.fence import check_load
from pgtop_tune.base.errors import UnsafeChange


def test_sessions_of_a_load_begin_with_no_value_that_is_locked_unless_it_may_be_unlocked() -> None:
    with pytest.raises(UnsafeChange, match="zero_damaged_pages = on can lose"):
        check_load((("work_mem", "64MB"), ("zero_damaged_pages", "on")), allow_unsafe=False)
    with pytest.raises(UnsafeChange, match="session_preload_libraries = x runs code: libraries"):
        check_load((("session_preload_libraries", "x"),), allow_unsafe=False)
    check_load((("zero_damaged_pages", "on"),), allow_unsafe=True)
    check_load((("synchronous_commit", "off"),), allow_unsafe=False)
    check_load((("work_mem", "64MB"),), allow_unsafe=False)
