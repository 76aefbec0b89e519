"""The questions that checks ask the server beside frames, and the rows of their `postgres/sql/check_*.sql`.

Fields are named as the columns of the file. Moments are milliseconds since the epoch on the server's clock. Names of
the server's objects are foreign text.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

from msgspec import Struct

from pgtop_tune.health.facts import Question

_SETTING_FILES_ACCESS: Final = (
    "GRANT SELECT ON pg_file_settings and GRANT EXECUTE ON FUNCTION pg_show_all_file_settings() grant access"
)


class DatabaseState(Struct, frozen=True):
    """A database as a whole.

    Attributes:
        open_schemas: Schemas in which PUBLIC may create objects.
        pgbench_scale: Rows of pgbench_branches; None without that table.
        pgbench_unlogged: Whether pgbench_accounts is unlogged; None without that table.
        stats_reset_ms: When its counters were reset; None when they never were.
    """

    name: str
    open_schemas: Sequence[str]
    pgbench_scale: int | None
    pgbench_unlogged: bool | None
    stats_reset_ms: int | None


class TableState(Struct, frozen=True):
    """A table that is among the first of its database by dead rows, changes, age, or missing statistics.

    Attributes:
        n_tables, n_never_analyzed: Numbers of all tables, and of such without statistics, in the whole database.
        bytes: Size of its main fork at its last VACUUM or ANALYZE.
        tuples: reltuples; 0 where it is not known.
        live, dead, modified: n_live_tup, n_dead_tup, n_mod_since_analyze.
        never_analyzed: Holds rows and was neither vacuumed nor analyzed since it was made or rewritten.
        xid_age, multixact_age: age(relfrozenxid), mxid_age(relminmxid).
        autovacuum: Its storage parameter autovacuum_enabled.
    """

    n_tables: int
    n_never_analyzed: int
    schema: str
    name: str
    bytes: int
    tuples: int
    live: int
    dead: int
    modified: int
    never_analyzed: bool
    last_vacuum_ms: int | None
    last_analyze_ms: int | None
    xid_age: int | None
    multixact_age: int | None
    autovacuum: bool


class BloatEstimate(Struct, frozen=True):
    """A table or B-tree of a megabyte or more, with what its rows would need.

    Attributes:
        n_hidden: Relations of the database whose statistics the role does not see, or that have none.
        kind: "table" or "index".
        table_name: The table of an index; else its own name.
        needed_bytes: Estimated; None without statistics.
        excludes: Whether it is the index of an exclusion constraint, which no REINDEX makes CONCURRENTLY.
    """

    n_hidden: int
    schema: str
    name: str
    kind: str
    table_name: str
    bytes: int
    needed_bytes: int | None
    excludes: bool = False


class IndexState(Struct, frozen=True):
    """An index that is invalid, the same as another, or unused.

    Attributes:
        n_indexes: Number of indexes in the whole database.
        bytes: Size at the last VACUUM or ANALYZE.
        scans: idx_scan.
        same_as: Name of an index of the same table that does all it does; None without one.
        unused: Never scanned, and no constraint needs it.
        definition: pg_get_indexdef(); None when it is gone by now.
        is_unique: Whether duplicates may be why it is invalid.
        computes: Whether an expression or a condition that fails on a row may be why.
        tablespace: Its own; None in that of the database. A definition does not tell it.
    """

    n_indexes: int
    schema: str
    name: str
    table_name: str
    bytes: int
    valid: bool
    scans: int
    same_as: str | None
    unused: bool
    definition: str | None
    is_unique: bool = False
    computes: bool = False
    tablespace: str | None = None


class BareForeignKey(Struct, frozen=True):
    """A foreign key whose columns no index of its table begins with.

    Attributes:
        columns: Columns in the order of the key.
        bytes, tuples: Size and rows of the referencing table.
        n_all: Such foreign keys in the database.
        partitioned: Whether the referencing table is.
        free_names: For an index on its columns, like those that the server chooses, the plainest first.
    """

    schema: str
    table_name: str
    name: str
    columns: Sequence[str]
    referenced_schema: str
    referenced_table: str
    bytes: int
    tuples: int
    n_all: int
    partitioned: bool = False
    free_names: Sequence[str] = ()


class SequenceState(Struct, frozen=True):
    """A sequence that can run out in a human life, and is past a tenth of what there is.

    Attributes:
        n_hidden: Such sequences that the role may not read.
        n_left_out: Those that were not read, because each takes a lock: of the smallest tables.
        table_schema, table_name, column_name: The column it feeds; None for one of its own.
        highest: Its MAXVALUE, or what the column can hold.
        used: last_value; None where the role may not see it.
        type_is_kept_by: "parent", "partition key" or "domain", for which ALTER COLUMN TYPE is no fix; None without one.
        used_by: Other objects that keep it, as pg_describe_object() has them: views, triggers, policies. Foreign text.
        least: MINVALUE of a descending one, whose `highest` and `used` are counted downwards; None of others.
        cycles: Whether it begins again at its end, with numbers that its column has had.
    """

    n_hidden: int
    n_left_out: int
    schema: str
    name: str
    table_schema: str | None
    table_name: str | None
    column_name: str | None
    highest: int
    used: int | None
    type_is_kept_by: str | None = None
    used_by: Sequence[str] = ()
    least: int | None = None
    cycles: bool = False


class KeyState(Struct, frozen=True):
    """A unique column of int2 or int4 that is past a tenth of its range.

    Attributes:
        n_hidden: Such columns whose statistics the role may not see.
        highest: Highest value of the type.
        used: The highest value ANALYZE met; None where the role may not see it.
        type_is_kept_by, used_by: As of `SequenceState`.
    """

    n_hidden: int
    schema: str
    table_name: str
    column_name: str
    highest: int
    used: int | None
    type_is_kept_by: str | None = None
    used_by: Sequence[str] = ()


class NameOnly(Struct, frozen=True):
    """A role or a tablespace of which only the name is asked."""

    name: str


class WeakPassword(Struct, frozen=True):
    """A role that may log in and whose password is kept as MD5."""

    name: str
    md5: bool


class ExpiringPassword(Struct, frozen=True):
    """A role that may log in and whose password ends.

    Attributes:
        valid_until: Time as the server writes it.
        remaining_s: Negative where it has ended; None where it has since ever.
    """

    name: str
    valid_until: str
    remaining_s: float | None


class HbaRule(Struct, frozen=True):
    """A line of pg_hba.conf, or of a file that it includes (16+).

    Attributes:
        type: local, host, hostssl, hostnossl, hostgssenc, hostnogssenc; None for a line with an error.
        address: Address as written: address, name, "all", "samehost", "samenet"; None for local.
        error: Message in the server's words and language; None for a good line.
        file_name: None before 16.
        map: Name of the map in pg_ident.conf; None without one.
        client_certificate: Option clientcert; None without one.
        is_ldap_in_clear: Whether the server asks LDAP without TLS.
    """

    line_number: int
    type: str | None
    databases: Sequence[str]
    users: Sequence[str]
    address: str | None
    netmask: str | None
    method: str | None
    error: str | None
    file_name: str | None = None
    map: str | None = None
    client_certificate: str | None = None
    is_ldap_in_clear: bool = False

    @property
    def place(self) -> str:
        """Return "line 7 of pg_hba.conf"; files of another name with their path. Foreign text."""
        return _place(self.line_number, self.file_name, "pg_hba.conf")


def _place(line_number: int, file_name: str | None, usual_name: str) -> str:
    usual = file_name is None or PurePosixPath(file_name).name == usual_name
    return f"line {line_number} of {usual_name if usual else file_name}"


class IdentLine(Struct, frozen=True):
    """A line of pg_ident.conf, or of a file that it includes (16+): who may log in as whom.

    Attributes:
        map_name: Lines of pg_hba.conf name it.
        sys_name: Name that the client proves; a regular expression after a slash.
        role_name: Role to log in as; from 16 on also "all", "+group" and a regular expression after a slash.
        error: Message in the server's words and language; None for a good line.
        file_name: None before 16.
        any_account, any_principal, any_subject: Whether a regular expression matches accounts, principals of Kerberos
            (perhaps of one realm), and subjects of certificates, of any name.
        superusers: Superusers for which the role stands, and that may log in; at most twenty.
    """

    line_number: int
    map_name: str
    sys_name: str
    role_name: str
    error: str | None
    file_name: str | None
    any_account: bool
    any_principal: bool
    superusers: Sequence[str]
    any_subject: bool = False

    @property
    def place(self) -> str:
        """Return "line 3 of pg_ident.conf"; files of another name with their path. Foreign text."""
        return _place(self.line_number, self.file_name, "pg_ident.conf")


class FileError(Struct, frozen=True):
    """A line of a configuration file that is not in force.

    Attributes:
        error: Message in the server's words and language.
    """

    sourcefile: str | None
    sourceline: int | None
    name: str | None
    error: str


class ConfiguredLine(Struct, frozen=True):
    """A parameter in the configuration files.

    Attributes:
        setting: Value as written in the line that counts; None where every line of it has an error.
        place: File and line of that line.
        stored: The value in postgresql.auto.conf; None where that file does not set it.
        next: The value that the next start reads.
    """

    name: str
    setting: str | None
    place: str | None
    stored: str | None
    next: str | None = None


class StartFile(Struct, frozen=True):
    """A file that the next start opens, or a library that it or each session loads.

    Attributes:
        database, role: Database and role of ALTER ROLE … SET, ALTER DATABASE … SET; None for all.
        name: The parameter.
        value: Value of the parameter.
        part: Path, or name of a library.
        path: Path of a library that exists.
        built_for: Major version that the library is made for; None where that is not known.
    """

    database: str | None
    role: str | None
    name: str
    value: str
    part: str
    is_library: bool
    is_there: bool
    is_directory: bool
    path: str | None = None
    built_for: int | None = None


class StartOptions(Struct, frozen=True):
    """postmaster.opts: the program and its arguments, each in double quotes."""

    text: str


class ScopedSettings(Struct, frozen=True):
    """ALTER ROLE … SET, ALTER DATABASE … SET.

    Attributes:
        database, role: None for all.
        settings: "name=value".
    """

    database: str | None
    role: str | None
    settings: Sequence[str]


class Encryption(Struct, frozen=True):
    """Sessions of clients on other machines.

    Attributes:
        plain: Neither in TLS nor in GSSAPI encryption.
    """

    remote: int
    plain: int


class ArchiveQueue(Struct, frozen=True):
    """Segments that are finished and not archived.

    Attributes:
        oldest_ms: When the oldest of them was finished; None without any.
    """

    waiting: int
    oldest_ms: int | None
    now_ms: int


class CatalogueCondition(Struct, frozen=True):
    """A condition of one object of a database. Names and texts are foreign.

    Attributes:
        kind: Word for the condition, as the files have it.
        n_all: Number of objects of that kind in the database; the answer holds the first thousand.
        name: Name of the object, with its schema where it has one.
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
        logins: Logins that have the right as its members, at most twenty.
    """

    kind: str
    role: str
    through: str
    with_admin: bool
    logins: Sequence[str] = ()


class ConnectionLimitRow(Struct, frozen=True):
    """Limit of the connections of a database or a role.

    Attributes:
        kind: "database" or "role"; "invalid" of a database whose DROP was interrupted.
        most: CONNECTION LIMIT; at least 0, but of "invalid".
    """

    kind: str
    name: str
    most: int


class ServerCertificate(Struct, frozen=True):
    """Certificate that the server shows to its clients.

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
        number: Number of files.
        newest_ms: When the newest was written; None without any.
        now_ms: The server's clock.
    """

    number: int
    newest_ms: int | None
    now_ms: int


class ControlFile(Struct, frozen=True):
    """Control file of a standby.

    Attributes:
        content: Its beginning.
    """

    content: bytes


DATABASE_STATE: Final = Question(
    "check_database", DatabaseState, "pg_namespace.nspacl, pg_class.reltuples", everywhere=True
)
TABLES: Final = Question("check_tables", TableState, "pg_class, pg_stat_all_tables", everywhere=True)
BLOAT: Final = Question("check_bloat", BloatEstimate, "pg_class, pg_stats", everywhere=True)
INDEXES: Final = Question("check_indexes", IndexState, "pg_index, pg_stat_all_indexes", everywhere=True)
FOREIGN_KEYS: Final = Question("check_foreign_keys", BareForeignKey, "pg_constraint, pg_index", everywhere=True)
SEQUENCES: Final = Question("check_sequences", SequenceState, "pg_sequence, pg_sequences", everywhere=True)
KEYS: Final = Question("check_keys", KeyState, "pg_index, pg_stats.histogram_bounds, most_common_vals", everywhere=True)
SUPERUSERS: Final = Question("check_roles", NameOnly, "pg_roles")
PASSWORDS: Final = Question("check_passwords", WeakPassword, "pg_authid.rolpassword", opens="superusers only")
EXPIRING: Final = Question("check_expiring_passwords", ExpiringPassword, "pg_roles.rolvaliduntil")
HBA: Final = Question(
    "check_hba",
    HbaRule,
    "pg_hba_file_rules",
    opens="GRANT SELECT ON pg_hba_file_rules and GRANT EXECUTE ON FUNCTION pg_hba_file_rules() grant access",
)
IDENT: Final = Question(
    "check_ident",
    IdentLine,
    "pg_ident_file_mappings; before 15 the file itself",
    opens="15 and later: GRANT SELECT ON pg_ident_file_mappings and GRANT EXECUTE ON FUNCTION "
    "pg_ident_file_mappings(), before: GRANT pg_read_server_files and pg_read_all_settings grant access",
)
FILE_ERRORS: Final = Question(
    "check_file_errors",
    FileError,
    "pg_file_settings",
    opens=_SETTING_FILES_ACCESS,
)
CONFIGURED: Final = Question(
    "check_configured",
    ConfiguredLine,
    "pg_file_settings",
    opens=_SETTING_FILES_ACCESS,
)
START_FILES: Final = Question(
    "check_start_files",
    StartFile,
    "pg_file_settings, pg_config(), pg_stat_file()",
    opens="GRANT SELECT ON pg_file_settings and GRANT EXECUTE ON FUNCTION pg_show_all_file_settings(), pg_config(), "
    "pg_stat_file(text, boolean) and GRANT pg_read_server_files grant access",
)
START_OPTIONS: Final = Question("check_start_options", StartOptions, "postmaster.opts")
SCOPED: Final = Question("check_scoped_settings", ScopedSettings, "pg_db_role_setting")
ENCRYPTION: Final = Question(
    "check_encryption", Encryption, "pg_stat_activity.client_addr, pg_stat_ssl, pg_stat_gssapi"
)
ARCHIVE_QUEUE: Final = Question(
    "check_archive_queue", ArchiveQueue, "pg_ls_archive_statusdir()", opens="GRANT pg_monitor grants access"
)
RELATIONS: Final = Question(
    "check_relations", CatalogueCondition, "pg_class, pg_constraint, pg_trigger, pg_index", everywhere=True
)
OBJECTS: Final = Question(
    "check_objects", CatalogueCondition, "pg_proc, pg_event_trigger, pg_extension, pg_collation", everywhere=True
)
PUBLIC: Final = Question(
    "check_public", CatalogueCondition, "pg_class.relacl, pg_default_acl, pg_database.datacl", everywhere=True
)
CONNECTION_LIMITS: Final = Question(
    "check_connection_limits", ConnectionLimitRow, "pg_database.datconnlimit, pg_roles.rolconnlimit"
)
TABLESPACES: Final = Question("check_tablespaces", NameOnly, "pg_tablespace.spcname")
POWERS: Final = Question("check_powers", RolePower, "pg_roles, pg_auth_members, pg_parameter_acl")
PASSWORDLESS: Final = Question("check_without_password", NameOnly, "pg_authid.rolpassword", opens="superusers only")
CERTIFICATE: Final = Question(
    "check_certificate",
    ServerCertificate,
    "pg_read_binary_file(ssl_cert_file)",
    opens="GRANT pg_read_server_files grants access",
)
BACKUPS: Final = Question("check_backups", BackupHistory, "pg_ls_waldir()", opens="GRANT pg_monitor grants access")
CONTROL: Final = Question(
    "check_control",
    ControlFile,
    "pg_read_binary_file(global/pg_control)",
    opens="GRANT EXECUTE ON FUNCTION pg_read_binary_file(text, bigint, bigint) grants access",
)

QUESTIONS: Final[tuple[Question[object], ...]] = (
    DATABASE_STATE, TABLES, BLOAT, INDEXES, FOREIGN_KEYS, SEQUENCES, KEYS,
    SUPERUSERS, PASSWORDS, EXPIRING, HBA, IDENT, FILE_ERRORS, CONFIGURED, START_FILES, START_OPTIONS, SCOPED,
    ENCRYPTION, ARCHIVE_QUEUE,
    RELATIONS, OBJECTS, PUBLIC, CONNECTION_LIMITS, TABLESPACES, POWERS, PASSWORDLESS, CERTIFICATE, BACKUPS, CONTROL,
)  # type: ignore[assignment]  # fmt: skip
"""All questions."""
