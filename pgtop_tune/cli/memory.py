"""The TLS library is 5 MB: it is loaded when a connection takes TLS, which one over a Unix socket does not.

asyncio, asyncpg and hashlib import it with themselves. `hold_back` imports asyncio and hashlib without it, as they come
on a Python that has none; what asks the module `ssl` for anything from then on has it loaded, and asyncio is told.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

# One heap of the C library for all threads: a program that runs beside the server keeps its memory small.

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
"""Parameters of mallopt(3), as glibc numbers them."""
_LARGE_BYTES: Final = 128 * 1024


def one_heap() -> None:
    """Asks glibc for a single heap, and to give back what is free; other C libraries have no such wish to be told.

    By default each thread gets a heap of its own, and what one has free another cannot use. Only one thread runs Python
    at a time, so there is nothing to be won by that. Before threads are started. Source: mallopt(3).
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    for parameter, value in ((_ARENA_MAX, 1), (_TRIM_THRESHOLD, _LARGE_BYTES), (_MMAP_THRESHOLD, _LARGE_BYTES)):
        mallopt(parameter, value)


def give_back() -> None:
    """Has glibc give back the pages between what is used: after the imports, a megabyte. Source: malloc_trim(3)."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        return


_SHA2: Final = ("_sha2",) if sys.version_info >= (3, 12) else ("_sha256", "_sha512")
_OWN_HASHES: Final = ("_md5", "_sha1", "_sha3", "_blake2", *_SHA2)
"""Python's own, which some distributions leave out: there hashlib needs the library."""
_loading: Final = threading.Lock()


class _TlsToCome(ModuleType):
    """Stands for the module `ssl` until it is asked for something."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_loaded(self), name)


def hold_back() -> None:
    """Before asyncio and hashlib are imported; where one of them is, the library is, and stays."""
    if sys.modules.keys() & {"ssl", "asyncio", "hashlib"}:
        return
    _import_without("ssl", "asyncio")
    sys.modules["ssl"] = _TlsToCome("ssl")
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


def _loaded(to_come: _TlsToCome) -> ModuleType:
    with _loading:
        if sys.modules.get("ssl") is to_come:
            del sys.modules["ssl"]
            tls = import_module("ssl")
            for name, module in list(sys.modules.items()):
                if name.startswith("asyncio.") and vars(module).get("ssl", name) is None:
                    vars(module)["ssl"] = tls
            again = (tls.SSLWantReadError, tls.SSLSyscallError)
            vars(import_module("asyncio.sslproto"))["SSLAgainErrors"] = again
        return sys.modules["ssl"]


def _pbkdf2_hmac(*arguments: Any, **words: Any) -> bytes:
    """`hashlib.pbkdf2_hmac`, which passwords by SCRAM take and only the library has."""
    derived: bytes = import_module("_hashlib").pbkdf2_hmac(*arguments, **words)
    return derived
