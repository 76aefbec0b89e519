"""Memory of a process: a late TLS library, and one heap for all threads.

The TLS library takes 5 MB; a connection over a Unix socket does without it. asyncio, asyncpg and hashlib import it.
`hold_back` imports asyncio and hashlib as on a Python without TLS; the first use of the module `ssl` loads the library.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
"""Parameters of mallopt(3), as glibc numbers them."""
_LARGE_BYTES: Final = 128 * 1024


def one_heap() -> None:
    """Have glibc use a single heap, and return free memory to the system; other C libraries take no such options.

    By default each thread has a heap of its own, whose free memory other threads cannot use. Python runs one thread at
    a time and gains nothing by that. Call before threads are started. Source: mallopt(3).
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    for parameter, value in ((_ARENA_MAX, 1), (_TRIM_THRESHOLD, _LARGE_BYTES), (_MMAP_THRESHOLD, _LARGE_BYTES)):
        mallopt(parameter, value)


def give_back() -> None:
    """Have glibc return free pages to the system: a megabyte after the imports. Source: malloc_trim(3)."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        return


_SHA2: Final = ("_sha2",) if sys.version_info >= (3, 12) else ("_sha256", "_sha512")
_OWN_HASHES: Final = ("_md5", "_sha1", "_sha3", "_blake2", *_SHA2)
"""Python's own hashes; some distributions leave them out, and hashlib needs the library there."""
_loading: Final = threading.Lock()


class _LateTls(ModuleType):
    """A stand-in for the module `ssl` until its first use."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_loaded(self), name)


def hold_back() -> None:
    """Import asyncio and hashlib without the TLS library; do nothing where one of the three is imported already."""
    if sys.modules.keys() & {"ssl", "asyncio", "hashlib"}:
        return
    _import_without("ssl", "asyncio")
    sys.modules["ssl"] = _LateTls("ssl")
    if all(map(find_spec, _OWN_HASHES)):
        _import_without("_hashlib", "hashlib", "hmac")
        vars(sys.modules["hashlib"])["pbkdf2_hmac"] = _pbkdf2_hmac


def _import_without(absent: str, *names: str) -> None:
    # To the importing module this is an ImportError.
    sys.modules[absent] = None  # type: ignore[assignment]
    try:
        for name in names:
            import_module(name)
    finally:
        del sys.modules[absent]


def _loaded(stand_in: _LateTls) -> ModuleType:
    with _loading:
        if sys.modules.get("ssl") is stand_in:
            del sys.modules["ssl"]
            tls = import_module("ssl")
            for name, module in list(sys.modules.items()):
                if name.startswith("asyncio.") and vars(module).get("ssl", name) is None:
                    vars(module)["ssl"] = tls
            again = (tls.SSLWantReadError, tls.SSLSyscallError)
            vars(import_module("asyncio.sslproto"))["SSLAgainErrors"] = again
        return sys.modules["ssl"]


def _pbkdf2_hmac(*arguments: Any, **keywords: Any) -> bytes:
    """Derive as `hashlib.pbkdf2_hmac`, which passwords by SCRAM need and only the library has."""
    derived: bytes = import_module("_hashlib").pbkdf2_hmac(*arguments, **keywords)
    return derived
