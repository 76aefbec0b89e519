"""pgbench's stderr, taken apart where its threads wrote into each other's lines.

Source: pgbench writes "pgbench:", " ", "error: " and the message with its line end one after the other
(src/common/logging.c), and nothing keeps two threads from doing so at the same time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_SEVERITY: Final = r"(?:error|fatal|warning|info|detail|hint):"
_PREFIXES: Final = re.compile(rf" *(?:(?:pgbench:|{_SEVERITY}) *)+")
_NEXT_MESSAGE: Final = re.compile(rf"(?<![/\s])(?=pgbench: *{_SEVERITY})")
_FOREIGN_PREFIX: Final = re.compile(r"(?<=\w)pgbench:(?=\S)")
_COUNTS: Final = r"(?:, (?:\d{1,18} (?:failed|skipped|retried|retries)|lag -?[\d.]{1,40} ms))"
_PROGRESS: Final = re.compile(
    rf"progress: [\d.]{{1,40}} s, \S{{1,40}} tps, lat \S{{1,40}} ms stddev -?(?:[\d.]{{1,40}}|nan|inf){_COUNTS}*"
    rf"|^{_COUNTS}+"
)
_OF_THE_SERVER: Final = re.compile(r"(?:WARNING|NOTICE|INFO|LOG|DEBUG): ")


def whole_lines(stderr: str) -> Iterator[str]:
    """The lines of stderr as one thread would have written them, without whole progress lines and empty ones.

    A message whose prefix is in another line stays without one.
    """
    for line in stderr.splitlines():
        said = _PROGRESS.sub("", line)
        for part in _NEXT_MESSAGE.split(said):
            text = _message(part.rstrip())
            if text:
                yield text


def _message(text: str) -> str:
    """One message with at most one prefix; "" when there is nothing but prefixes."""
    prefixes = _PREFIXES.match(text)
    if prefixes is None:
        return _FOREIGN_PREFIX.sub("", text)
    words = _FOREIGN_PREFIX.sub("", text[prefixes.end() :])
    if not words or _OF_THE_SERVER.match(words):
        return words
    severity = re.search(_SEVERITY, prefixes[0])
    return f"pgbench: {severity[0] if severity else 'error:'} {words}"
