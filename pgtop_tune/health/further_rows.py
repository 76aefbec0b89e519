"""Rows of `postgres/sql/check_*.sql` about objects of a database, rights of roles, and files of the server.

As those of `questions`: fields are named as the columns, moments are milliseconds since the epoch by the server.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class CatalogueCondition(Struct, frozen=True):
    """A condition of one object of a database. Names and texts are foreign.

    Attributes:
        kind: Which condition: the files have the words.
        n_all: Of that kind in the database; the answer holds the first thousand.
        name: Of the object, with its schema where it has one.
        part: Within it: a constraint, a storage parameter; or the version that is there.
        detail: A value, another object, the version that there could be.
    """

    kind: str
    n_all: int
    name: Sequence[str]
    part: str
    detail: str


class RolePower(Struct, frozen=True):
    """A right of a role that is no superuser.

    Attributes:
        kind: "row security" for BYPASSRLS, "files read" for pg_read_server_files, "server account" for those with which
            a role becomes the account that runs the server, a superuser's among them; of logins "any role" for
            CREATEROLE before 16 and "roles" since, "replication" for REPLICATION.
        role: "" for PUBLIC.
        through: The role it was granted; "" for an attribute of its own; of "parameter" the one that it may ALTER
            SYSTEM SET, a command or a library.
        with_admin: Whether it may grant that on.
        logins: That come to the right as its members, at most twenty.
    """

    kind: str
    role: str
    through: str
    with_admin: bool
    logins: Sequence[str] = ()


class ConnectionLimit(Struct, frozen=True):
    """How many connections a database or a role may have.

    Attributes:
        kind: "database" or "role"; "invalid" of a database whose DROP was interrupted.
        most: CONNECTION LIMIT; at least 0, but of "invalid".
    """

    kind: str
    name: str
    most: int


class Tablespace(Struct, frozen=True):
    """A tablespace."""

    name: str


class PasswordlessLogin(Struct, frozen=True):
    """A role that may log in and has no password."""

    name: str


class ServerCertificate(Struct, frozen=True):
    """What the server shows to its clients.

    Attributes:
        file: ssl_cert_file.
        pem: Its content, which is public; None where it is not there.
        now_ms: The server's clock.
    """

    file: str
    pem: bytes | None
    now_ms: int


class BackupHistory(Struct, frozen=True):
    """History files of backups in pg_wal.

    Attributes:
        number: How many there are.
        newest_ms: When the newest was written; None without any.
        now_ms: The server's clock.
    """

    number: int
    newest_ms: int | None
    now_ms: int


class ControlFile(Struct, frozen=True):
    """Of a standby.

    Attributes:
        content: Its beginning.
    """

    content: bytes
