"""The table of sections: each field of a frame has one row, and the row says what the field holds."""

from __future__ import annotations

from typing import TypeVar, get_args, get_type_hints

import pytest
from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Section
from pgtop_tune.model.absence import NOT_YET, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import HostSample
from pgtop_tune.model.postgres import PostgresSample

S = TypeVar("S", bound=Struct)


@pytest.mark.parametrize("holder", [PostgresSample, HostSample, Frame])
def test_every_field_that_can_be_absent_has_one_row_with_its_struct(holder: type) -> None:
    fields = {name: get_args(hint) for name, hint in get_type_hints(holder).items() if Unavailable in get_args(hint)}
    rows = {section.name: (section.struct, Unavailable) for section in sections.ALL if section.holder is holder}
    assert rows == {name: kinds for name, kinds in fields.items() if not {PostgresSample, HostSample} & set(kinds)}


def test_no_section_has_two_rows() -> None:
    assert len({(section.holder, section.name) for section in sections.ALL}) == len(sections.ALL)


def _with(holder: S, reading: dict[str, Unavailable]) -> S:
    return replace(holder, **{name: value for name, value in reading.items() if hasattr(holder, name)})


@pytest.mark.parametrize("section", sections.ALL, ids=lambda section: section.name)
def test_a_row_reaches_its_field_and_the_reason_why_there_is_none(section: Section[object]) -> None:
    reading = {section.name: NOT_YET}
    frames = {
        id(PostgresSample): Frame(0, 0, 0.0, postgres=_with(PostgresSample(), reading)),
        id(HostSample): Frame(0, 0, 0.0, host=_with(HostSample(), reading)),
        id(Frame): _with(Frame(0, 0, 0.0), reading),
    }
    assert section(frames[id(section.holder)]) is NOT_YET
    gone = Frame(0, 0, 0.0, host=NOT_YET, postgres=NOT_YET)
    assert isinstance(section(gone), Unavailable)


def test_who_waits_is_read_before_what_for() -> None:
    order = [section.name for section in sections.READ]
    assert order.index("activity") < order.index("locks")
    assert order.index("statements") < order.index("statement_counters")
    assert order.index("statement_counters") < order.index("statement_texts")
