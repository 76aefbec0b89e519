"""What pgbench says when it fails: its own words, and a hint of ours for what is common."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from pgtop_tune.bench.progress import PREFIX
from pgtop_tune.bench.torn_lines import whole_lines

_CONSEQUENCE: Final = re.compile(
    r"could not create connection for (?:setup|client \d+)$|Run was aborted; |setting random seed to \S+$", re.I
)
"""Said as well, but never the reason."""
_NOT_PREPARED: Final = re.compile(r'prepared statement ".*" does not exist')
"""Said after the statement was refused as well: then that is the reason."""
_ABORTED: Final = re.compile(r"client \d{1,9} script (\d{1,3}) aborted in command")
_SEVERITY: Final = re.compile(r"^(?:pgbench: (?:error|fatal): )?")
_MOST_LINES: Final = 6

HINTS: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(pattern, re.I), hint)
    for pattern, hint in (
        (r'relation "pgbench_\w+" does not exist|pgbench -i',
         "create its tables first: pgtop-tune bench init -s 10 -d DATABASE (or pgbench -i)"),
        (r'relation "bus\.\w+" does not exist|undefined variable "(?:tickets|rides|seats|days)"',
         "create the bus company's tables first: pgtop-tune bench init --dataset bus -d DATABASE"),
        (r"ERROR: +syntax error", "fix that statement in its script"),
        (r"too many clients already|too many connections for|remaining connection slots",
         "fewer clients, or a higher max_connections (needs a restart)"),
        (r"need at least \d+ open files|too many open files",
         "fewer clients, or a higher limit of open files: ulimit -n"),
        (r"permission denied for",
         "run as the owner of pgbench's tables, or GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public"),
        (r'role ".*" does not exist', "choose another role with -U, or create it"),
        (r'database ".*" does not exist', "choose another database with -d, or create it: createdb"),
        (r"connection refused|No such file or directory|could not connect",
         "the server is not running there, or it listens elsewhere"),
        (r"could not translate host name|Name or service not known", "check the host name"),
        (r"password authentication failed|no password supplied", "check the password in ~/.pgpass or PGPASSWORD"),
        (r"no pg_hba.conf entry", "the server's pg_hba.conf admits this user only from other addresses"),
        (r"terminating connection|server closed the connection|perhaps the backend died",
         "the server ended the sessions (restart, crash, or pg_terminate_backend); start the load again"),
        (_NOT_PREPARED.pattern,
         "a pooler in transaction mode without prepared statements: protocol simple or extended"),
        (r"read-only transaction", "the server is a standby or read-only: profile select-only"),
    )
)  # fmt: skip
"""The first row that fits pgbench's words."""


def last_words(stderr: str) -> str:
    """The lines in which pgbench says why it ended, without progress and repetition; "" when it said nothing.

    The first lines count: what follows a failure are its consequences, one per client.
    """
    kept: dict[str, None] = {}
    behind: dict[str, None] = {}
    for text in whole_lines(stderr):
        if not text.startswith(PREFIX):
            (behind if _CONSEQUENCE.search(text) else kept).setdefault(text)
    return "\n".join(list(kept or behind)[:_MOST_LINES])


def with_script(words: str, stderr: str, scripts: Sequence[str]) -> str:
    """The words with the name of the script before them, where pgbench has several and gives the number of one.

    Args:
        words: Why it ended.
        stderr: All it said: of a statement that could not be prepared only a later line has the number.
        scripts: Names in the order of the command line, from number 0.
    """
    aborted = _ABORTED.search(stderr)
    if aborted is None or len(scripts) < 2 or int(aborted[1]) >= len(scripts):
        return words
    return _SEVERITY.sub(lambda severity: f"{severity[0]}{scripts[int(aborted[1])]}: ", words, count=1)


def hint_for(words: str) -> str:
    """What to do about it; "" when it is none of the common failures."""
    lines = words.splitlines()
    reason = "\n".join([line for line in lines if not _NOT_PREPARED.search(line)] or lines)
    return next((hint for pattern, hint in HINTS if pattern.search(reason)), "")
