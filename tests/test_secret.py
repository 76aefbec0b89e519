"""What looks like a password in a parameter is masked, and nothing else is touched."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.secret import MASK, without_secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("host=db1 password=sesame user=repl", f"host=db1 password={MASK} user=repl"),
        ("host=db1 password = 'ses ''ame' user=repl", f"host=db1 password = {MASK} user=repl"),
        (r"password='ses\'ame' port=5432", f"password={MASK} port=5432"),
        ("postgresql://repl:sesame@db1:5432/postgres", f"postgresql://repl:{MASK}@db1:5432/postgres"),
        ("postgresql://repl:ses@me@db1/x", f"postgresql://repl:{MASK}@db1/x"),
        ("postgresql://db1/x?user=a&password=sesame&port=1", f"postgresql://db1/x?user=a&password={MASK}&port=1"),
        ("PGPASSWORD=sesame pg_receivewal -D /wal", f"PGPASSWORD={MASK} pg_receivewal -D /wal"),
        ('sslpassword="ses ame" x=1', f"sslpassword={MASK} x=1"),
    ],
)
def test_passwords_are_masked(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


@pytest.mark.parametrize(
    "text", ["", "on", "16GB", "$libdir", '"$user", public', "postgresql://db1:5432/x", "host=db1 passfile", "%m [%p] "]
)
def test_everything_else_stays(text: str) -> None:
    assert without_secrets(text) == text


@given(st.text("0123456789", min_size=8, max_size=20))
def test_no_password_is_left(word: str) -> None:
    for text in (f"password={word}", f"a=b password='{word} {word}' c=d", f"postgresql://u:{word}@h/d"):
        assert word not in without_secrets(text)
