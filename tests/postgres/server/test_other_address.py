"""A secret stays with the address that it was found for; another address gets its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.secret import Secret
from pgtop_tune.postgres.server.conninfo import ConnInfo, resolve
from pgtop_tune.postgres.server.other_address import OtherAddress, resolve_other

OURS = "of our server"
FORMS = (
    OtherAddress(port="6482"),
    OtherAddress(host="127.0.0.2"),
    OtherAddress(host="127.0.0.2", port="6415", database="shop"),
    OtherAddress(host="/run/elsewhere", port="6415"),
    OtherAddress(uri="postgresql://127.0.0.2:6415/shop"),
    OtherAddress(uri="postgresql://bench@127.0.0.1:6482/shop?sslmode=prefer"),
    OtherAddress(uri="postgresql://bench@127.0.0.1:6415/shop?hostaddr=127.0.0.2"),
    OtherAddress(
        uri="postgresql://bench@127.0.0.1:6415/shop?hostaddr=127.0.0.2&sslmode=verify-full&sslrootcert=/of/theirs"
    ),
    OtherAddress(uri="postgresql://bench@127.0.0.1:6415,127.0.0.2:6415/shop"),
    OtherAddress(uri="postgresql:///shop?service=ours&host=127.0.0.2"),
    OtherAddress(uri="postgresql:///shop?service=ours&hostaddr=127.0.0.2"),
    OtherAddress(host="127.0.0.2", database="shop host=127.0.0.1 port=6415"),
)
"""Forms of an endpoint that lead, or also lead, to another address than that of our server."""


@pytest.fixture(params=["typed", "variable", "string", "service", "of the environment's service", ".pgpass"])
def watched(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ConnInfo:
    """Our server, with its password from one of the sources."""
    for name in [name for name in os.environ if name.startswith("PG")]:
        monkeypatch.delenv(name)
    password = "" if request.param == ".pgpass" else f"password={OURS}\n"
    (tmp_path / "services").write_text(f"[ours]\nhost=127.0.0.1\nport=6415\nuser=bench\n{password}")
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pgpass"))
    words = "postgresql://bench@127.0.0.1:6415/shop"
    if request.param == "typed":
        return resolve(words, password=Secret(OURS))
    if request.param == "variable":
        monkeypatch.setenv("PGPASSWORD", OURS)
    elif request.param == "string":
        return resolve(f"{words}?password={OURS.replace(' ', '%20')}")
    elif request.param == "service":
        return resolve("service=ours dbname=shop")
    elif request.param == "of the environment's service":
        monkeypatch.setenv("PGSERVICE", "ours")
        return resolve("shop")
    else:
        passwords(tmp_path, f"127.0.0.1:6415:*:bench:{OURS}")
    return resolve(words)


def passwords(directory: Path, *lines: str) -> None:
    file = directory / "pgpass"
    file.write_text("".join(f"{line}\n" for line in lines))
    file.chmod(0o600)


@pytest.mark.parametrize("address", FORMS, ids=lambda address: address.uri or f"{address.host}:{address.port}")
def test_another_address_gets_no_secret_of_ours(watched: ConnInfo, address: OtherAddress) -> None:
    assert watched.password == Secret(OURS)
    found = resolve_other(address, watched)
    away = [each for each in found.endpoints if (each.address, each.port) != ("127.0.0.1", 6415)]
    assert away
    assert [each.password for each in away] == [None] * len(away)
    assert OURS not in found.as_psycopg().values()
    # An empty one keeps libpq from looking into the environment when it connects.
    assert found.as_psycopg()["password"] == ""
    attempts = [each for each in found.as_libpq() if (each["hostaddr"] or each["host"]) != "127.0.0.1"]
    assert all(each["password"] == "" for each in attempts)


@pytest.mark.parametrize(
    "address",
    [
        OtherAddress(database="other"),
        OtherAddress(host="127.0.0.1", port="6415"),
        OtherAddress(uri="postgresql://bench@127.0.0.1:6415/other"),
    ],
    ids=str,
)
def test_our_servers_own_address_keeps_its_password(watched: ConnInfo, address: OtherAddress) -> None:
    found = resolve_other(address, watched)
    assert found.password == Secret(OURS)
    assert found.as_psycopg()["password"] == OURS


def test_another_role_on_our_server_is_another_secret(watched: ConnInfo) -> None:
    assert resolve_other(OtherAddress(uri="postgresql://root@127.0.0.1:6415/shop"), watched).password is None


def test_an_address_has_what_was_written_down_for_it(watched: ConnInfo, tmp_path: Path) -> None:
    passwords(
        tmp_path, r"127.0.0.1:6482:shop:bench:its\:own", "*:6483:*:*:of a wildcard", "127.0.0.3:*:*:*:of an address"
    )
    with (tmp_path / "services").open("a") as services:
        services.write("[pool]\nhost=127.0.0.2\nport=6432\nuser=pooler\npassword=of its service\n")
    expected = {
        OtherAddress(port="6482"): "its:own",
        OtherAddress(host="127.0.0.9", port="6483"): "of a wildcard",
        OtherAddress(uri="postgresql://127.0.0.1:6482/shop"): "its:own",
        OtherAddress(uri="postgresql://bench:in%20it@127.0.0.2:6415/shop"): "in it",
        OtherAddress(uri="postgresql:///shop?service=pool"): "of its service",
        OtherAddress(uri="postgresql://?host=db&hostaddr=127.0.0.3&port=6415"): "of an address",
        OtherAddress(uri="postgresql://db:6483/shop?hostaddr=127.0.0.2&sslmode=verify-full"): "of a wildcard",
    }
    for address, password in expected.items():
        found = resolve_other(address, watched)
        assert found.as_psycopg()["password"] == password, address
        assert found.password == Secret(password), address
    assert resolve_other(OtherAddress(uri="postgresql:///shop?service=pool"), watched).user == "pooler"


@pytest.mark.parametrize("keyword", ["sslkeylogfile=/etc/passwd", "gssdelegation=1", "servicefile=/x"])
def test_an_address_may_not_have_files_written_or_tickets_handed_on(watched: ConnInfo, keyword: str) -> None:
    with pytest.raises(UsageProblem):
        resolve_other(OtherAddress(uri=f"postgresql://127.0.0.2/shop?{keyword}"), watched)


def test_an_address_that_is_no_uri_of_postgresql_is_refused(watched: ConnInfo) -> None:
    with pytest.raises(UsageProblem, match="must begin with postgresql://"):
        resolve_other(OtherAddress(uri="https://127.0.0.2/shop"), watched)


def test_a_variable_about_our_address_says_nothing_about_another(
    watched: ConnInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGHOSTADDR", "127.0.0.1")
    assert resolve_other(OtherAddress(host="127.0.0.2"), watched).endpoints[0].address == "127.0.0.2"
    assert resolve_other(OtherAddress(uri="postgresql://127.0.0.2/shop"), watched).endpoints[0].address == "127.0.0.2"
