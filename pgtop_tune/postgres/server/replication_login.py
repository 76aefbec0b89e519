"""The replication login that a primary needs to follow its own standby. Blocking."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from typing import Final, NoReturn

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.model.instance import ServerPlace
from pgtop_tune.postgres.server.conninfo import SECRET_KEYWORDS, ServerEndpoint, parsed
from pgtop_tune.process.own_program import own_argv

_LOGIN_S: Final = "5"
_CHILD_S: Final = 20
_WORDS: Final = 300


def turned_round(primary_conninfo: str, standby: ServerEndpoint) -> str:
    """Return the connection with which the primary of a standby would follow it.

    Args:
        primary_conninfo: The parameter of the standby.
        standby: Where it is.

    Raises:
        UsageProblem: It has a password, which a command line would show, or a service, which may have one.
    """
    from psycopg.conninfo import make_conninfo

    keywords = parsed(primary_conninfo)
    if secrets := (SECRET_KEYWORDS | {"service"}) & keywords.keys():
        raise UsageProblem(
            f"primary_conninfo of {standby} has a {min(secrets)}, which a command line would show",
            "put the password into a password file (passfile) of the server's account",
        )
    keywords |= {"host": standby.host, "port": str(standby.port), "hostaddr": standby.hostaddr}
    # With it `why_refused` would write to a file that the server's superuser names.
    keywords.pop("sslkeylogfile", None)
    return make_conninfo("", **{key: value for key, value in keywords.items() if value})


def why_refused(source: str, primary: ServerPlace) -> str:
    """Return why a server refuses the replication login of its primary's account, in its words; "" where it accepts.

    A child with the rights of that server's account asks: its user name counts, its password file and its keys, with
    names as they are below its data directory.
    """
    uid, gid = primary.uid, primary.gid
    if uid is None or gid is None:
        uid, gid = os.geteuid(), os.getegid()
    try:
        child = subprocess.run(
            [*own_argv(__name__), str(uid), str(gid), primary.data_directory, source],
            stdin=subprocess.DEVNULL, capture_output=True, cwd="/", check=False, timeout=_CHILD_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"no answer within {_CHILD_S} s"
    except OSError as problem:
        return one_line(problem.strerror or str(problem), _WORDS)
    refusal = one_line(child.stderr.decode("utf-8", "replace").strip(), _WORDS)
    return (refusal or "it did not say why") if child.returncode else ""


def _become(uid: int, gid: int) -> None:
    try:
        os.initgroups(pwd.getpwuid(uid).pw_name, gid)
    except KeyError:
        os.setgroups([gid])
    os.setgid(gid)
    os.setuid(uid)


def _log_in(uid: int, gid: int, directory: str, source: str) -> str:
    """Log in as an account; return why the server refuses, "" where it does not."""
    # Before we are that account, which may be unable to read our library.
    from psycopg import pq
    from psycopg.conninfo import make_conninfo

    if uid != os.geteuid():
        _become(uid, gid)
    os.chdir(directory)
    for name in [name for name in os.environ if name.startswith("PG") or name == "HOME"]:
        del os.environ[name]
    connection = pq.PGconn.connect(make_conninfo(source, replication="true", connect_timeout=_LOGIN_S).encode())
    refused = connection.status != pq.ConnStatus.OK
    message = connection.error_message.decode("utf-8", "replace") if refused else ""
    connection.finish()
    return message


def main() -> NoReturn:
    """Log in as the command line says; a refusal is on stderr."""
    uid, gid, directory, source = sys.argv[1:]
    sys.exit(_log_in(int(uid), int(gid), directory, source) or None)


if __name__ == "__main__":
    main()
