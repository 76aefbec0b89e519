"""What looks like a secret in a text of others is masked, wherever it is cut, and nothing else is touched."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from psycopg.conninfo import make_conninfo
from psycopg.sql import Literal

from pgtop_tune.base.secret import MASK, without_secrets


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
        ("https://sesame@git.example/x.git", f"https://{MASK}@git.example/x.git"),
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


SECRET = "hunter2sesame"
ANNOUNCED = (
    "ALTER ROLE bob WITH PASSWORD <S>",
    "host=h scram_client_key=<S> scram_server_key='<S>'",
    "CREATE USER bob PASSWORD <S>;",
    "ALTER ROLE bob PASSWORD '<S>'",
    "ALTER ROLE bob PASSWORD'<S>'",
    r"ALTER ROLE bob WITH ENCRYPTED PASSWORD E'<S>\' x' VALID UNTIL '2030'",
    "ALTER ROLE bob PASSWORD /* c */ '<S>'",
    "ALTER ROLE bob PASSWORD -- c\n  '<S>'",
    "ALTER ROLE bob PASSWORD $$<S>$$ x",
    "ALTER ROLE bob PASSWORD $a$<S>$a$ x",
    "ALTER ROLE bob PASSWORD '<S>",
    "ALTER ROLE bob PASSWORD U&'<S>' UESCAPE '!'",
    "ALTER ROLE bob PASSWORD 'it''s <S>' CREATEDB",
    "DO $$ BEGIN EXECUTE 'ALTER ROLE bob PASSWORD ''my <S>''' ; END $$",
    "EXECUTE 'EXECUTE ''ALTER ROLE x PASSWORD ''''a <S>'''' '' x'",
    "select dblink('host=h password=<S> port=1', 'select 1')",
    "select dblink('host=h password=''my <S>'' port=1', 'select 1')",
    r"select dblink(E'host=h password=\'my <S>\' port=1', 'select 1')",
    "CREATE USER MAPPING FOR x SERVER s OPTIONS (user 'x', password '<S>')",
    """ALTER USER MAPPING FOR x SERVER s OPTIONS (SET "password" '<S>')""",
    "CREATE SUBSCRIPTION s CONNECTION 'host=h password=<S> dbname=x' PUBLICATION p",
    "alter system set primary_conninfo = 'host=h password=''a <S>'' user=x'",
    "primary_conninfo = 'host=h sslpassword=<S> user=x'",
    "host=h password=<S> user=x",
    "host=h password='it''s <S>' user=x",
    "host=h password=a'b'<S> user=x",
    r"host=h password=a\ <S> user=x",
    "host=h password=a&<S>;x,<S>|<S> user=x",
    "postgresql://u:<S>@h/db",
    "postgresql://u:<S>",
    "redis://:<S>@h:6379/0",
    "curl -u me:<S> http://x",
    "curl -ume:<S> http://x",
    "curl --user me:<S> http://x",
    "curl --user=me:<S> http://x",
    'curl --proxy-user "me:my <S>" http://x',
    "curl -u 'me:my <S>' http://x",
    "archive_command = 'curl -u me:<S> --token=<S> file'",
    "archive_command 'curl -u ''me:my <S>'' file'",
    "wal-g --token <S> --x y",
    "wal-g --password <S> --x y",
    "tool --auth-token=<S> --x",
    "tool --secret-string 'a <S>' --x",
    "tool --key <S>",
    "KEY=<S> tool",
    "AWS_SECRET_ACCESS_KEY=<S> AWS_ACCESS_KEY_ID=AK wal-g",
    "PGPASSWORD=<S> psql",
    "api_key: <S>",
    'apiKey = "<S>"',
    '{"token": "<S>", "x": 1}',
    r"{\"password\": \"a <S>\", \"x\": 1}",
    'curl -H "Authorization: Bearer <S>" http://x',
    "curl -H 'Authorization: Basic <S>' http://x",
    "select crypt('<S>', gen_salt('bf'))",
    "select pgp_sym_encrypt(data, '<S>'), x",
    "select pgp_sym_decrypt(data, 'a <S>",
    "select set_config('app.password', '<S>', false)",
    "SET app.secret TO '<S>'",
    "SET app.secret = <S>",
    "ALTER ROLE x SET app.token = '<S>'",
    "select * from t where password = '<S>'",
    "select * from t where u.password='<S>' and x='y'",
    """select * from t where "password" = '<S>'""",
    "select * from t where password IN ('<S>','<S>')",
    "select * from t where token = ANY(ARRAY['<S>'])",
    "select * from t where token = ANY('{<S>}')",
    "update t set password = md5('a <S>'), x = 1",
    "update t set password = 'a' || '<S>', x = 1",
    "select * from t where data->>'password' = '<S>'",
    "select jsonb_build_object('password', '<S>')",
    "https://s3/x?X-Amz-Signature=<S>&a=b",
    "https://s/x?sig=<S>&a=b",
    "GET /a?expires=1&signature=<S>&a=b",
    "-----BEGIN RSA PRIVATE KEY-----\n<S>\n-----END RSA PRIVATE KEY-----",
    "COPY t TO PROGRAM 'curl -u me:<S> -T - http://x'",
    "COPY t FROM PROGRAM 'PGPASSWORD=<S> psql'",
    "SELECT * FROM dblink_connect('postgresql://u:<S>@h/d')",
    "CREATE FOREIGN DATA WRAPPER options(sslpassword '<S>')",
    "ALTER DATABASE x SET my.api_key = '<S>'",
    "comment on role x is 'password: <S>'",
    "select 'password' , x from t where y = 'a' and token='<S>'",
    'login failed password="a <S>"',
    "SharedAccessSignature=sv=2020&sig=<S>",
    "sshpass -p <S> scp x y",
    "lftp -u bob,<S> sftp://h",
    "AZURE_STORAGE_KEY=<S> wal-g",
    "select hmac('data', '<S>', 'sha256')",
    "DO $$ DECLARE v_password text := '<S>'; BEGIN PERFORM 1; END $$",
    "DO $$ DECLARE v_password CONSTANT varchar(30) DEFAULT '<S>'; BEGIN PERFORM 1; END $$",
    "CREATE TABLE u (password text NOT NULL DEFAULT '<S>')",
    "ALTER TABLE u ALTER password SET DEFAULT '<S>'",
    "DO $$ BEGIN EXECUTE format('ALTER ROLE %I PASSWORD %L', 'bob', '<S>'); END $$",
    "DETAIL:  Key (id, api_token)=(1, <S>) already exists.",
    "DETAIL:  Key (password)=(<S>) already exists.",
    "select * from u where lower(password) = '<S>'",
    "select * from u where password::text = '<S>'",
    """select * from u where password COLLATE "C" = '<S>'""",
    "select * from u where (name, password) = ('bob', '<S>')",
    "select * from u where (password, name) IN (('<S>', 'bob'))",
    "select vault.create_secret('<S>', 'name')",
    "call set_password('bob', '<S>')",
    "INSERT INTO users (name, password) VALUES ('bob', '<S>')",
    "INSERT INTO users (password, token, x) VALUES ('<S>', '<S>', 1), ('a', '<S>', 2)",
)
"""<S> stands for a secret."""
READABLE = (
    "select password from t",
    "SELECT token, secret FROM t WHERE id = 'x'",
    "password_encryption = 'scram-sha-256'",
    'FATAL:  password authentication failed for user "bob"',
    "INSERT INTO users (name, password) VALUES ($1, $2)",
    "SELECT 1 FROM u WHERE password = $1 AND token=$2",
    "SELECT 1 FROM u WHERE token IN ($1, $2)",
    "SELECT 1 FROM u WHERE password = crypt($1, password)",
    "SELECT 1 FROM a JOIN b ON a.token = b.token",
    "UPDATE users SET password = crypt($1, gen_salt($2))",
    "SELECT * FROM t WHERE token = ANY($1::text[])",
    "UPDATE t SET token = md5(random()::text) WHERE id = 3",
    "UPDATE t SET token = s.new_token, x = 'y' FROM s",
    "INSERT INTO tokens (user_id, token) SELECT 1, 'x'",
    "SELECT count(token) FROM t HAVING count(token) = 5",
    "INSERT INTO t VALUES ($1) ON CONFLICT (id) DO UPDATE SET password = EXCLUDED.password",
    "GRANT SELECT (password) ON t TO bob",
    "GRANT SELECT ON secrets TO app_user",
    "SELECT password::text FROM t",
    "SELECT * FROM kv WHERE key = 'x'",
    "http://localhost:8080",
    "postgresql://db1:5432,db2:5433/x?user=a@b",
    'parameter "password_encryption" changed to "md5"',
    "SELECT 'password' AS x, 'y'",
    "SELECT * FROM t WHERE name = 'password' AND x = 'foo'",
    "SELECT * FROM t WHERE name IN ('password', $1)",
    "-- the password of the user",
    "select 1",
    "ssl_passphrase_command=/bin/x",
    "max_tokens_per_run",
    "ALTER TABLE t RENAME COLUMN password TO old_password",
    "ALTER ROLE bob PASSWORD NULL",
    "CREATE TABLE t (password text NOT NULL, token uuid DEFAULT gen_random_uuid())",
    "UPDATE t SET password = NULL",
    "SELECT passenger, compass FROM t WHERE passenger = 'x'",
    "SELECT a -u.x FROM u",
    'syntax error at or near "password"',
    "psql -U bob -h x",
    """SELECT "password" FROM "t" WHERE "id" = 'x'""",
    'ERROR:  invalid input syntax for type json DETAIL:  Token "abc" is invalid.',
)


@pytest.mark.parametrize("text", ANNOUNCED)
def test_a_secret_that_a_word_announces_is_masked_wherever_the_text_is_cut(text: str) -> None:
    text = text.replace("<S>", SECRET)
    assert SECRET not in without_secrets(text)
    for length in range(len(text)):
        assert SECRET[:4] not in without_secrets(text[:length]), text[:length]


@pytest.mark.parametrize("text", ANNOUNCED)
def test_what_is_masked_already_stays_as_it_is(text: str) -> None:
    once = without_secrets(text.replace("<S>", SECRET))
    assert without_secrets(once) == once


def test_of_the_values_of_an_insert_those_of_other_columns_stay() -> None:
    shown = without_secrets("INSERT INTO u (id, password, name) VALUES (1, 'x', 'bob') RETURNING id")
    assert shown == f"INSERT INTO u (id, password, name) VALUES (1, {MASK}, 'bob') RETURNING id"


@pytest.mark.parametrize("text", READABLE)
def test_names_and_placeholders_stay_readable(text: str) -> None:
    assert without_secrets(text) == text


ANY_SECRET = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",))).map(lambda text: f"{text}xyz")


@given(ANY_SECRET)
@example(">$xyz")
@example(">$$xyz")
def test_whatever_the_secret_is_nothing_of_it_is_left(secret: str) -> None:
    literal = Literal(secret).as_string(None).strip()
    assert without_secrets(f"ALTER ROLE r PASSWORD {literal} LOGIN") == f"ALTER ROLE r PASSWORD {MASK} LOGIN"
    words = make_conninfo("", password=secret, port=1)
    assert without_secrets(words) in (f"password={MASK} port=1", f"password={MASK}")
    nested = without_secrets("SELECT dblink('{}')".format(words.replace("'", "''")))
    assert nested.removeprefix(f"SELECT dblink('password={MASK}") in (" port=1')", "')", "")


@given(st.text("'\"\\$ps=:@/-u()[]|, \n"), st.sampled_from(("password", "token=", "crypt(", "://u:", "-u ")))
def test_any_text_is_taken(text: str, word: str) -> None:
    whole = f"{word}{text}"
    assert without_secrets(whole).startswith(word.rstrip("'\""))
    # In front of the word the text itself may begin a secret.
    assert without_secrets(f"{text}{whole}")
