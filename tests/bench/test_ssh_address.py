"""What --load-from takes, and the words it becomes."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.bench.places import SshAddress, parse_address, ssh_words


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("ssh://generator", SshAddress("generator")),
        ("ssh://load@10.0.0.7:2222", SshAddress("10.0.0.7", "load", 2222)),
        ("ssh://load@[fe80::1]:22", SshAddress("fe80::1", "load", 22)),
        ("ssh://generator/", SshAddress("generator")),
    ],
)
def test_addresses(text: str, address: SshAddress) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        "generator",
        "http://generator",
        "ssh://",
        "ssh://-oProxyCommand=evil",
        "ssh://-l@host",
        "ssh://host:0",
        "ssh://host:99999",
        "ssh://host:ssh",
        "ssh://a b",
        "ssh://host/tmp",
        "ssh://user:secret@host",
    ],
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageProblem) as problem:
        parse_address(text)
    assert "secret" not in problem.value.message


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",))), min_size=1))
def test_every_word_of_the_command_arrives_as_it_is(command: list[str]) -> None:
    words = ssh_words(("ssh",), SshAddress("host", "load", 2222), command)
    assert words[-3:-1] == ["--", "host"]
    assert shlex.split(words[-1]) == command
    assert words[-7:-3] == ["-p", "2222", "-l", "load"]


def test_ssh_asks_nothing_and_forwards_nothing() -> None:
    words = ssh_words(("ssh",), SshAddress("host"), ("true",))
    assert {"BatchMode=yes", "ForwardAgent=no", "ClearAllForwardings=yes", "ControlPath=none"} <= set(words)
    assert {"-T", "-a", "-x"} <= set(words)
