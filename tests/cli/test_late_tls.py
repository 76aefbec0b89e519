"""What watches without TLS does not load its library; what asks for it later has it, as if it had been there."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.runs import ROOT
from tests.support.certificates import Authority

_BEFORE = """
import json, sys
from pgtop_tune.cli.memory import hold_back
hold_back()
import asyncio, hashlib, hmac, secrets, asyncpg
said = {"before": sorted({"_ssl", "_hashlib"} & set(sys.modules))}
"""
_ALONE = """
said["md5"] = hashlib.md5(b"abc").hexdigest()
said["hmac"] = hmac.new(b"key", b"abc", hashlib.sha256).hexdigest()
said["still"] = sorted({"_ssl", "_hashlib"} & set(sys.modules))
said["scram"] = hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 2).hex()
print(json.dumps(said))
"""
_ENCRYPTED = """
import asyncpg.connect_utils, pathlib
certificate, key, root, large = *sys.argv[1:4], 1 << 20
tls = asyncpg.connect_utils.ssl_module

async def answer(reader, writer):
    writer.write((await reader.readline()).upper() + b"x" * large)
    await writer.drain()
    writer.close()

async def plain(reader, writer):
    writer.close()

async def main():
    inside = tls.create_default_context(tls.Purpose.CLIENT_AUTH)
    inside.load_cert_chain(certificate, key)
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=inside)
    # As asyncpg makes it: the default context of Python 3.13 refuses certificates that libpq takes.
    outside = tls.SSLContext(tls.PROTOCOL_TLS_CLIENT)
    outside.load_verify_locations(root)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=outside, server_hostname="db.internal")
    writer.write(b"hello\\n")
    said["line"], said["rest"] = (await reader.readline()).decode(), len(await reader.read())
    try:
        await asyncio.open_connection("127.0.0.1", port, ssl=outside, server_hostname="elsewhere")
    except tls.SSLCertVerificationError as problem:
        said["refused"] = type(problem).__module__
    broken = await asyncio.start_server(plain, "127.0.0.1", 0)
    try:
        port = broken.sockets[0].getsockname()[1]
        await asyncio.open_connection("127.0.0.1", port, ssl=outside, server_hostname="db.internal")
    except OSError as problem:
        said["cut"] = True

asyncio.run(main())
import ssl
said["same"] = ssl.SSLContext is tls.SSLContext
print(json.dumps(said))
"""


def _said(script: str, *words: str) -> dict[str, object]:
    command = [sys.executable, "-c", _BEFORE + script, *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=True)
    assert done.stderr == ""
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_passwords_are_hashed_without_the_library_or_load_it() -> None:
    assert _said(_ALONE) == {
        "before": [],
        "md5": "900150983cd24fb0d6963f7d28e17f72",
        "hmac": "9c196e32dc0175f86f4b1cb89289d6619de6bee699e4c378e68309ed97a1a6ab",
        "still": [],
        "scram": "ae4d0c95af6b46d32d0adff928f06dd02a303f8ef3c251dfd6e2d85a95474c43",
    }


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make certificates with")
def test_tls_that_comes_late_encrypts_and_refuses_as_ever(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.signed("server", alternatives="DNS:db.internal")
    assert _said(_ENCRYPTED, str(certificate), str(key), str(authority.root)) == {
        "before": [],
        "line": "HELLO\n",
        "rest": 1 << 20,
        "refused": "ssl",
        "cut": True,
        "same": True,
    }
