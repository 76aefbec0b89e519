"""Files of the server that checks decode: the end of a certificate, the control file of a standby. Pure.

Source: RFC 5280, 4.1.2.5; RFC 7468.
"""

from __future__ import annotations

import binascii
import re
import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----\s+([A-Za-z0-9+/=\s]+?)-----END CERTIFICATE-----")
_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_FORMS: Final = {0x17: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}
"""UTCTime, GeneralizedTime."""
_FORK: Final = 2050
"""A UTCTime of 50 and later is of the century before."""


def ends_at(pem: bytes) -> datetime:
    """Return the end of the first certificate of a file, which is the server's own.

    Raises:
        ValueError: There is no certificate in it, or none that can be read.
    """
    block = _PEM.search(pem)
    if block is None:
        raise ValueError("no PEM certificate in it")
    try:
        der = binascii.a2b_base64(block[1])
        certificate = _inside(der, _SEQUENCE)[0]
        remaining = _inside(certificate, _SEQUENCE)[0]
        if remaining[:1] == bytes((_VERSION,)):
            remaining = _next(remaining)[2]
        for _ in range(3):
            # Serial number, signature, issuer.
            remaining = _next(remaining)[2]
        _, _, after = _next(_inside(remaining, _SEQUENCE)[0])
        tag, text, _ = _next(after)
        end = datetime.strptime(text.decode("ascii"), _FORMS[tag]).replace(tzinfo=UTC)
    except (KeyError, IndexError, UnicodeDecodeError, binascii.Error) as problem:
        raise ValueError("the certificate cannot be read") from problem
    return end.replace(year=end.year - 100) if tag == 0x17 and end.year >= _FORK else end


def _inside(data: bytes, tag: int) -> tuple[bytes, bytes]:
    """Return the content of the first element, and the bytes after it."""
    found_tag, content, remaining = _next(data)
    if found_tag != tag:
        raise ValueError("unexpected element")
    return content, remaining


def _next(data: bytes) -> tuple[int, bytes, bytes]:
    """Return tag and content of the first element of DER, and the bytes after it."""
    tag, length, start = data[0], data[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(data[2:start], "big")
    if start + length > len(data):
        raise ValueError("truncated element")
    return tag, data[start : start + length], data[start + length :]


_HEAD: Final = struct.Struct("=QI")
_SETTINGS: Final = struct.Struct("=i?3x5i?")
_PLACES: Final[Mapping[int, int]] = MappingProxyType({13: 172, 17: 172, 18: 172, 19: 180})
"""Hundreds of pg_control_version, 13 from 14 to 16 → offset of wal_level, which the settings follow."""
_LEVELS: Final = ("minimal", "replica", "logical")
AT_LEAST: Final = (
    "max_connections", "max_worker_processes", "max_wal_senders", "max_prepared_transactions",
    "max_locks_per_transaction",
)  # fmt: skip
"""A standby needs at least as much of each as its primary has. Source: "Hot Standby", "Administrator's Overview"."""


def settings_of_primary(content: bytes, system_identifier: str) -> Mapping[str, str]:
    """Return values by parameter, as pg_settings.setting has them.

    Args:
        content: Beginning of global/pg_control.
        system_identifier: Identifier of the server from which it was read.

    Raises:
        ValueError: It is another server's, or of a form that is not known; one line.
    """
    if len(content) < _HEAD.size:
        raise ValueError("the control file is too short")
    identifier, version = _HEAD.unpack_from(content)
    if str(identifier) != system_identifier:
        raise ValueError("the control file has another system identifier than the server")
    offset = _PLACES.get(version // 100)
    if offset is None or len(content) < offset + _SETTINGS.size:
        raise ValueError(f"the version of the control file, {version}, is not known")
    level, hints, *numbers, stamps = _SETTINGS.unpack_from(content, offset)
    if not 0 <= level < len(_LEVELS) or not 1 <= numbers[0] <= 262_143:
        raise ValueError(f"the control file, version {version}, does not have its settings where expected")
    settings = {"wal_level": _LEVELS[level], **dict(zip(AT_LEAST, map(str, numbers), strict=True))}
    return settings | {"wal_log_hints": _switch(hints), "track_commit_timestamp": _switch(stamps)}


def _switch(value: bool) -> str:
    return "on" if value else "off"
