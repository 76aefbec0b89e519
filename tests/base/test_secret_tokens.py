"""A token that its form gives away is masked without a word beside it, and SQL stays readable."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pgtop_tune
from pgtop_tune.base.secret import MASK, TOKEN_KINDS, TokenKind, without_secrets

PLACES = ("{}", "INSERT INTO x VALUES ('{}', 1)", "a {} b", "-H 'X: {}'", "x={};", '{{"a":"{}"}}', "(4711,{},t)")
READABLE = (
    "SELECT md5('x'), md5(random()::text) FROM pgbench_accounts",
    "UPDATE t SET etag = 'd41d8cd98f00b204e9800998ecf8427e' WHERE id = 'b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",
    "SELECT hf_measurements_of_the_year_2024.value FROM hf_measurements_of_the_year_2024",
    "SELECT SG.customer_id, SG.name FROM segments_of_customers SG WHERE SG.name LIKE 'sk-%'",
    "SELECT npm_packages.name, gho_orders.total FROM npm_packages JOIN gho_orders USING (id)",
    "CREATE INDEX task_0a1b2c3d4e5f0a1b2c3d4e5f0a1b2c3d4e5f ON tasks (id)",
    "SELECT * FROM jobs WHERE key = 'task-0A1B2C3D4E5F0A1B2C3D4E5F0A1B2C3D4E5F0A1B2C3D'",
    "SELECT 'SCRAM-SHA-256$4096' AS method, 'eyJ' AS begins",
    "INSERT INTO files VALUES ('\\\\x89504e470d0a1a0a0000000d49484452000001000000010008060000005c72a866')",
    "LOG:  checkpoint complete: wrote 4711 buffers (28.8%); lsn=0/1A2B3C4D, redo lsn=0/1A2B3C00",
    "COPY (SELECT 1) TO '/srv/exports/2026-11-23T09:40:00.123456+00/part-00000000000000000001.csv'",
    "restore_command=cp /archive/000000010000000A000000FF %p",
    "SELECT dapi_version, glc_id, figd_id FROM pypi_downloads_by_country_and_version_2024",
)


def example(kind: TokenKind, begin: str) -> str:
    return begin + kind.example.removeprefix(kind.begins[0])


@pytest.mark.parametrize("kind", TOKEN_KINDS, ids=lambda kind: kind.name)
def test_a_token_is_masked_wherever_it_stands(kind: TokenKind) -> None:
    for begin in kind.begins:
        token = example(kind, begin)
        for place in PLACES:
            text = place.format(token)
            masked = without_secrets(text)
            assert masked == place.format(begin + MASK), text
            assert without_secrets(masked) == masked


@pytest.mark.parametrize("kind", TOKEN_KINDS, ids=lambda kind: kind.name)
def test_of_a_token_that_is_cut_off_less_than_half_is_left(kind: TokenKind) -> None:
    rest = kind.example.removeprefix(kind.begins[0])
    for cut in range(max(kind.least // 2, 16 - len(kind.begins[0])), kind.least):
        assert rest[:8] not in without_secrets(f"INSERT INTO x VALUES ('{kind.begins[0]}{rest[:cut]}")


def test_the_secret_beside_an_access_key_goes_with_it() -> None:
    secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCY" + "EXAMPLEKEY"
    shown = without_secrets(f"INSERT INTO x VALUES ('AKIAIOSFODNN7EXAMPLE', '{secret}', 'eu')")
    assert shown == f"INSERT INTO x VALUES ('AKIA{MASK}', '{MASK}', 'eu')"


@pytest.mark.parametrize("block", ["PGP PRIVATE KEY BLOCK", "OPENSSH PRIVATE KEY", "RSA PRIVATE KEY"])
def test_a_key_in_a_block_is_masked(block: str) -> None:
    shown = without_secrets(f"VALUES ('-----BEGIN {block}-----\nMIIEvQ\nAAAA\n-----END {block}-----')")
    assert "MIIEvQ" not in shown


@pytest.mark.parametrize("text", READABLE)
def test_ordinary_texts_stay_readable(text: str) -> None:
    assert without_secrets(text) == text


def test_our_own_statements_stay_readable() -> None:
    for path in Path(pgtop_tune.__file__).parent.rglob("*.sql"):
        text = path.read_text(encoding="utf-8")
        assert without_secrets(text) == text, path


@given(st.text("eyJ.sk-_AKIA0a md5$'=:/", max_size=300))
def test_any_text_is_taken(text: str) -> None:
    masked = without_secrets(text)
    assert without_secrets(masked) == masked
