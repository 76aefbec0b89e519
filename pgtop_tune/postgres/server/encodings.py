"""Decoding of the server's texts: unreadable bytes become U+FFFD, never an error.

PostgreSQL returns a text of another database, and a name in a shared catalogue, in the bytes in which it was written.
So our sessions let the server convert nothing where Python knows the encoding, and decode each text in its own
encoding.

Source: chapter "Character Set Support": names of encodings; pg_wchar.h.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

RAW: Final = "SQL_ASCII"
"""Value of client_encoding for which the server neither converts nor checks."""
NOT_CONVERTED: Final = frozenset({"22021", "22P05"})
"""sqlstates of a text that the server cannot convert: character_not_in_repertoire, untranslatable_character."""

_UTF_8: Final = "utf-8"
_SINGLE_BYTE: Final[Mapping[str, str]] = {
    **{f"LATIN{number}": f"iso8859-{part}" for number, part in enumerate((1, 2, 3, 4, 9, 10, 13, 14, 15, 16), start=1)},
    **{f"ISO_8859_{part}": f"iso8859-{part}" for part in (5, 6, 7, 8)},
    **{f"WIN{page}": f"cp{page}" for page in (866, 874, *range(1250, 1259))},
    "KOI8R": "koi8-r",
    "KOI8U": "koi8-u",
}
_PYTHON: Final[Mapping[str, str]] = {
    "UTF8": _UTF_8,
    RAW: _UTF_8,
    "EUC_JP": "euc_jp",
    "EUC_CN": "gb2312",
    "EUC_KR": "euc_kr",
    "EUC_JIS_2004": "euc_jis_2004",
    **_SINGLE_BYTE,
}
"""Encodings of databases without EUC_TW, which Python does not know, and MULE_INTERNAL, which is made of others."""
_MULE: Final = "MULE_INTERNAL"
_OF_MULE: Final[Mapping[int, str]] = {
    **{0x80 + part: f"iso8859-{part}" for part in (1, 2, 3, 4)},
    0x8B: "koi8-r",
    0x8C: "iso8859-5",
    0x91: "gb2312",
    0x92: "euc_jp",
    0x93: "euc_kr",
}
"""Encoding of a character by its leading byte."""
_OF_TWO_BYTES: Final = 0x90
"""First leading byte of characters of two bytes."""

Decode = Callable[[bytes], str]


def is_known(encoding: str) -> bool:
    """Return whether Python knows this encoding, so that the server need not convert it."""
    return encoding in _PYTHON or encoding == _MULE


@cache
def decoder(encoding: str) -> Decode:
    """Return the decoder of an encoding; for an unknown one, it decodes ASCII only.

    Bytes in a single-byte encoding that are also valid UTF-8 count as UTF-8 of another database: "Ã©" is no text.
    """
    if encoding == _MULE:
        return _from_mule
    name = _PYTHON.get(encoding, "ascii")

    def decode(value: bytes) -> str:
        return value.decode(name, "replace")

    def utf_8_first(value: bytes) -> str:
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.decode(name, "replace")

    return utf_8_first if encoding in _SINGLE_BYTE else decode


def _from_mule(value: bytes) -> str:
    letters, at = list[str](), 0
    while at < len(value):
        lead, begin = value[at], at + 1
        at = begin if lead < 0x80 else begin + 1 + (lead >= _OF_TWO_BYTES)
        codec = _OF_MULE.get(lead)
        letters.append(chr(lead) if lead < 0x80 else value[begin:at].decode(codec, "replace") if codec else "\ufffd")
    return "".join(letters)


def encoder(encoding: str) -> Callable[[str], bytes]:
    """Return the encoder of an encoding; characters that it lacks become question marks."""
    name = _PYTHON.get(encoding, _UTF_8)
    return lambda text: text.encode(name, "replace")
