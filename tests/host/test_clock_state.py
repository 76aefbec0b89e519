"""Whether something keeps the clock right: what the kernel says of it, on this machine and as bytes."""

from __future__ import annotations

import struct

import pytest

from pgtop_tune.host.machine_setup import clock_in_step, in_step


@pytest.mark.parametrize(("status", "is_in_step"), [(0, True), (0x2001, True), (0x40, False), (0x2041, False)])
def test_the_kernel_says_by_one_bit_that_nothing_keeps_the_clock_right(status: int, is_in_step: bool) -> None:
    assert in_step(struct.pack("@illlli", 0, 1, 2, 3, 4, status) + bytes(400)) is is_in_step


def test_this_machine_has_an_answer() -> None:
    assert clock_in_step() in (True, False)
