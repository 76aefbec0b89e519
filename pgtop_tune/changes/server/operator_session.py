"""The operator's session: ALTER SYSTEM, ALTER ROLE and ALTER DATABASE, reload and reading back, over one psycopg
connection.

Blocking; `control` calls it from a thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from msgspec.structs import replace
from psycopg.rows import dict_row

from pgtop_tune.base.errors import ConnectionProblem, NotLetIn, ServerProblem
from pgtop_tune.base.foreign_answers import check_shape
from pgtop_tune.base.sql_quoting import composed, identifier, literal, quoted
from pgtop_tune.base.start_options import with_settings
from pgtop_tune.changes.model.change import SYSTEM, Scope, joined_notes
from pgtop_tune.changes.server.instances import server_identity
from pgtop_tune.changes.server.markers import is_marker
from pgtop_tune.changes.start.places import ELSEWHERE
from pgtop_tune.changes.statements import STORED, statement
from pgtop_tune.cluster.auto_conf import FILE_NAME
from pgtop_tune.model.parameter_values import has_own_value
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.postgres import queries
from pgtop_tune.postgres.server import own_sessions
from pgtop_tune.postgres.server.conninfo import APPLICATION_NAME, ConnInfo, Reached, ServerEndpoint
from pgtop_tune.postgres.server.failures import (
    STATEMENT_HINTS,
    PlainWords,
    connection_problem,
    not_text,
    refusal_state,
    refused_in_other_words,
    server_words,
    sqlstate_of,
)
from pgtop_tune.postgres.server.libpq import CONNECT_TIMEOUT_S, connect, cut
from pgtop_tune.postgres.server.own_sessions import OwnSessions, marked
from pgtop_tune.postgres.server.search_path import AT_START, pin, unpinned
from pgtop_tune.postgres.server.way_in import attempts, login_problem

CONTROL_NAME: Final = f"{APPLICATION_NAME} control"
_ATTEMPTS: Final = 20
_RELOAD_DEADLINE_S: Final = 3.0
_POLL_S: Final = 0.01
_UNREAD: Final = """
SELECT sourcefile, sourceline, error FROM pg_file_settings
 WHERE name IS NULL
   AND (sourcefile IS NOT NULL
        OR (NOT EXISTS (SELECT FROM pg_file_settings WHERE name IS NOT NULL)
            AND NOT EXISTS (SELECT FROM pg_settings WHERE pending_restart)))
 LIMIT 1
"""
"""Faults of a file, not of a value (guc-file.l: record_config_file_error). Neither name nor file has a parameter that
takes a restart and whose line is gone; where postgresql.conf cannot be opened, nothing else is there."""
_WRITTEN: Final = "SELECT lower(name) AS name FROM pg_file_settings WHERE lower(name) = ANY(%s)"
_MAY_OPEN: Final = "SELECT has_function_privilege('pg_read_file(text, bigint, bigint, boolean)', 'execute')"
_OPENED: Final = "SELECT pg_read_file('postgresql.auto.conf', 0, 1, true)"
_MAY_RELOAD: Final = """
SELECT has_function_privilege('pg_show_all_file_settings()', 'execute')
   AND has_table_privilege('pg_file_settings', 'select')
   AND has_function_privilege('pg_reload_conf()', 'execute')
   AND pg_has_role('pg_read_all_settings', 'usage')
"""
_NO_LIBRARY: Final = "its library is not loaded: put it back into shared_preload_libraries, restart, and try again"
_LOADED: Final = "SELECT pg_conf_load_time()::text"
"""As text: with another DateStyle than ISO psycopg reads no time (ALTER DATABASE … SET DateStyle)."""
_READ_ONLY: Final = "default_transaction_read_only"
_ROLE_OF_DATABASE: Final = """
SELECT EXISTS (SELECT FROM pg_db_role_setting s CROSS JOIN LATERAL unnest(s.setconfig) AS entry
                WHERE s.setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
                  AND s.setrole = 0 AND entry LIKE 'role=%')
   AND NOT EXISTS (SELECT FROM pg_db_role_setting s CROSS JOIN LATERAL unnest(s.setconfig) AS entry
                    WHERE s.setrole = (SELECT oid FROM pg_roles WHERE rolname = session_user) AND entry LIKE 'role=%')
"""
"""Whether ALTER DATABASE … SET role has made this session another role; a setting of the role itself is meant."""
_IN_TRANSACTION: Final = psycopg.pq.TransactionStatus.INTRANS
_NOT_OF_THE_FILE: Final = ("F0000", "53")
"""Beginnings of sqlstates that say nothing of who may write it: a syntax error in it, a full disk."""
_INSUFFICIENT_PRIVILEGE: Final = "42501"
_NOT_SUPPORTED: Final = "0A000"
_NO_PLACE: Final = "53"
_SWITCHED_OFF: Final = "ALTER SYSTEM is switched off on this server (allow_alter_system)"
_UNKNOWN_NAME: Final = "42704"
_KEEPALIVES: Final = {"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}
"""Settings of our own session: the server notices within half a minute that its other end is gone."""
_KEPT_ALIVE: Final = ", ".join(
    f"pg_catalog.set_config('{name}', '{value}', false)" for name, value in _KEEPALIVES.items()
)


class OperatorSession:
    """A psycopg connection in autocommit.

    Attributes:
        instance: Which server it is, as its role sees it.
        endpoint: host:port as connected.
        direct: Whether the server itself answers, and no pooler in front of it.
        major: The major version of the server.
    """

    def __init__(
        self,
        conninfo: ConnInfo,
        our_sessions: OwnSessions,
        begun: Callable[[OperatorSession], None] = lambda session: None,
    ) -> None:
        """Connect.

        Args:
            conninfo: The server.
            our_sessions: Our sessions.
            begun: Called once there is a connection, before the session is ready: it can be aborted from here.

        Raises:
            ConnectionProblem: Not there; in libpq's words.
            NotLetIn: There, and says no.
            PasswordNeeded: It wants a password.
        """
        self._own = our_sessions
        self._begun = begun
        self._conninfo = conninfo
        self.major = own_sessions.ALL_SINCE
        self._switched_off: frozenset[str] = frozenset()
        try:
            self._begin("")
            self._prepare()
        except (ConnectionProblem, psycopg.Error) as error:
            if own_sessions.bites(str(error), sqlstate_of(error)):
                self._begin_without_limits(error)
            else:
                self._begin_without_lock_out(error)
        self._own.pids.add(self._pid)
        self.endpoint = f"{self._connection.info.host}:{self._connection.info.port}"
        try:
            self.instance = server_identity(self)
        except BaseException:
            self.close()
            raise

    def _begin(self, options: str) -> None:
        self._lifted_from_start = bool(options)
        try:
            self._connection: psycopg.Connection[dict[str, Any]] = connect(
                self._conninfo,
                CONTROL_NAME,
                options=options,
                # Behind a pooler a statement prepared in one session is asked of another.
                prepare_threshold=None,
                row_factory=dict_row,
            )
        except psycopg.OperationalError as error:
            raise login_problem(error, _state_of(error, self._conninfo), self._conninfo) from None
        except (OSError, UnicodeError) as error:
            # psycopg looks host names up by itself, before libpq has a say.
            raise connection_problem(error, self._conninfo) from None
        self._pid = self._connection.info.backend_pid
        self.major = self._connection.info.server_version // 10_000
        self._begun(self)

    def _begin_without_lock_out(self, problem: Exception) -> None:
        """A library, a setting or a login trigger ends sessions as they begin, or holds them."""
        for settings in attempts(problem):
            try:
                self._begin(with_settings("", settings))
            except ConnectionProblem:
                continue
            self._lifted_from_start = False
            self._switched_off = frozenset(settings)
            self._prepare()
            return
        raise problem

    def _begin_without_limits(self, problem: Exception) -> None:
        """A limit is so low that it ends sessions before they can lift it, some of them even then."""
        names = own_sessions.of_major(self.major)
        for _ in range(_ATTEMPTS):
            try:
                self._begin(own_sessions.options(names))
                self._prepare()
            except NotLetIn:
                break
            except (ConnectionProblem, psycopg.Error):
                continue
            return
        raise problem

    def _prepare(self) -> None:
        """Lift the settings of the database that would keep us from reverting a change: time limits, nor transactions
        that only read, nor another role."""
        try:
            # A pooler tells a number of its own, or that of another session.
            [answering] = self._run("SELECT pg_catalog.pg_backend_pid() AS pid").fetchall()
            self.direct: bool = answering["pid"] == self._pid
            if self.direct:
                self._run(f"SELECT {pin(local=False)}, pg_catalog.set_config('{_READ_ONLY}', 'off', false)")
                if self._value(_ROLE_OF_DATABASE):
                    self._run("SET ROLE NONE")
                self._run(own_sessions.lifting(own_sessions.of_major(self.major)))
                # A machine that is lost must not keep its advisory locks for hours.
                self._run(f"SELECT {_KEPT_ALIVE}")
        except BaseException:
            self._connection.close()
            raise

    def new_login(
        self, settings: Mapping[str, str], database: str = "", *, application_name: str = CONTROL_NAME
    ) -> ConnectionProblem | None:
        """Log in once more at the address of this session, and log out.

        Args:
            settings: Parameters of the start-up packet.
            database: Another database than ours.
            application_name: By which the session is found while it hangs.

        Returns:
            Why the server does not let us in; None where it does, or where that says nothing of a setting: a limit has
            ended the session, or no place is free.
        """
        info = self._connection.info
        endpoint = ServerEndpoint(host=info.host, port=info.port, hostaddr=info.hostaddr)
        there = self._conninfo.pinned(Reached(endpoint, bool(self._connection.pgconn.ssl_in_use)))
        keywords = {**there.keywords}
        if int(keywords.get("connect_timeout") or 0) <= 0:
            # A value on trial can hang a login: it always has a time limit.
            keywords["connect_timeout"] = str(CONNECT_TIMEOUT_S)
        there = replace(there, dbname=database or there.dbname, keywords=keywords)
        try:
            connection = connect(there, application_name, options=with_settings("", settings))
        except psycopg.OperationalError as error:
            state = refusal_state(error) or _state_of(error, there)
            if state.startswith(_NO_PLACE) or own_sessions.ended_by_limit(str(error), state):
                return None
            return login_problem(error, state, there)
        except OSError as error:
            return connection_problem(error, there)
        pid = connection.info.backend_pid
        self._own.pids.add(pid)
        connection.close()
        self._own.pids.discard(pid)
        return None

    def load(self, library: str) -> None:
        """Load a library into the session that serves us, as new sessions would.

        Raises:
            ServerProblem: It did not load in time, and our connection is gone.
            psycopg.Error: As psycopg raises it.
        """
        hung = threading.Event()

        def hang_up() -> None:
            hung.set()
            self.abort()

        # No limit of the server's ends a library that does not look.
        timer = threading.Timer(CONNECT_TIMEOUT_S, hang_up)
        timer.daemon = True
        timer.start()
        try:
            with self._one_session():
                self._run(str(composed("LOAD {library}", library=literal(library))))
        except psycopg.OperationalError:
            if not hung.is_set():
                raise
            raise ServerProblem(
                f"{library} did not load within {CONNECT_TIMEOUT_S} s", "its session may remain until it is killed"
            ) from None
        finally:
            timer.cancel()

    def answers(self) -> bool:
        """Return whether the connection still leads to the server; a restart cuts it without a word to us."""
        try:
            return bool(self._value("SELECT true"))
        except psycopg.OperationalError:
            return False

    def parameters(self, names: Sequence[str]) -> tuple[Parameter, ...]:
        """Return the named rows of pg_settings that this server has, in the order asked for."""
        text = f"SELECT * FROM ({queries.sql('parameters', self.major)}) p WHERE lower(name) = ANY(%s)"
        lower_names = [name.lower() for name in names]
        rows = self.rows(text, lower_names)
        parameters = {row["name"].lower(): Parameter(**{**row, "enumvals": tuple(row["enumvals"])}) for row in rows}
        for parameter in parameters.values():
            check_shape(parameter)
        waiting = [
            name for name, parameter in parameters.items() if parameter.pending_restart and has_own_value(parameter)
        ]
        written = self._rows_of_files(_WRITTEN, waiting) if waiting else None
        for name in set(waiting).difference(row["name"] for row in written) if written is not None else ():
            parameters[name] = replace(parameters[name], pending_restart=False)
        after = {_READ_ONLY, *own_sessions.LIMITS, *_KEEPALIVES} if self.direct else set()
        after |= self._switched_off
        masked_names = [name for name in parameters if name in AT_START or name in after]
        if masked_names:
            lines = {
                row["name"]: (row["setting"], row["place"])
                for row in self._rows_of_files(own_sessions.IN_FILES, masked_names) or ()
            }
            for name in masked_names:
                line = lines.get(name)
                if name not in own_sessions.LIMITS:
                    parameters[name] = unpinned(parameters[name], line)
                else:
                    parameters[name] = own_sessions.as_set(parameters[name], line, from_start=self._lifted_from_start)
        return tuple(parameters[name.lower()] for name in names if name.lower() in parameters)

    def _rows_of_files(self, text: str, names: Sequence[str]) -> list[dict[str, Any]] | None:
        """Return what the files say of parameters; None where this role may not look."""
        try:
            return self.rows(text, list(names))
        except psycopg.errors.InsufficientPrivilege:
            return None

    def parameter(self, name: str) -> Parameter:
        """Return one row of pg_settings.

        Raises:
            ServerProblem: The server does not have it, or this role may not see it.
        """
        parameters = self.parameters([name])
        if not parameters:
            raise ServerProblem(f'unrecognized configuration parameter "{name}"', sqlstate="42704")
        return parameters[0]

    def check_permitted(self) -> None:
        """Make sure that a change could be undone and would take effect, before any is made.

        Raises:
            ServerProblem: This role may not look into the files or not reload; the hint has the GRANTs.
        """
        if not self._value(_MAY_RELOAD):
            user = quoted(self._conninfo.user)
            raise ServerProblem(
                "this role may not reload or read the configuration, so a change could not be undone",
                "connect as a superuser, or: GRANT SELECT ON pg_file_settings, EXECUTE ON FUNCTION "
                f"pg_show_all_file_settings(), pg_reload_conf(), and the role pg_read_all_settings, to {user}",
                _INSUFFICIENT_PRIVILEGE,
            )

    def check_alter_system(self) -> None:
        """Make sure that ALTER SYSTEM is possible at all.

        Raises:
            ServerProblem: allow_alter_system is off (PostgreSQL 17).
        """
        if self._is_switched_off():
            hint = "change it where its configuration is managed; a role or a database can still have its own value"
            raise ServerProblem(_SWITCHED_OFF, hint)

    def _is_switched_off(self) -> bool:
        parameters = self.parameters(["allow_alter_system"])
        return bool(parameters) and parameters[0].setting == "off"

    def auto_conf(self) -> dict[str, str]:
        """Return the parameters that postgresql.auto.conf sets, in the order of its lines. Raises as below."""
        return {name: value for name, value in self.auto_conf_lines().items() if not is_marker(name)}

    def auto_conf_lines(self) -> dict[str, str]:
        """Return all that postgresql.auto.conf sets, our markers included.

        Raises:
            ServerProblem: One of the server's files cannot be read: it stops there, and says nothing of this one.
        """
        for fault in self.rows(_UNREAD):
            location = f"{fault['sourcefile']}:{fault['sourceline']}: " if fault["sourcefile"] else ""
            raise ServerProblem(
                f"the server cannot read its files: {location}{fault['error']}", "fix that first; nothing was changed"
            )
        rows = self.rows(queries.sql("auto_conf", self.major))
        if not rows:
            self._check_auto_conf()
        return {row["name"]: row["setting"] for row in rows}

    def _check_auto_conf(self) -> None:
        """A file that the server may not open is to it as one that is not there (guc-file.l: not strict)."""
        if not self._value(_MAY_OPEN):
            return
        try:
            self._value(_OPENED)
        except psycopg.Error as error:
            if self._connection.broken or self._connection.closed:
                raise
            raise ServerProblem(
                f"the server cannot read its files: {server_words(error)}", "fix that first; nothing was changed"
            ) from None

    def stored(self, name: str, scope: Scope) -> str | None:
        """Return the value that a scope has for a parameter, None where it has no entry.

        For the system the line of postgresql.auto.conf, else of pg_db_role_setting.
        """
        if scope.is_system:
            return next((value for key, value in self.auto_conf_lines().items() if key.lower() == name.lower()), None)
        rows = self.rows(STORED, scope.database or None, scope.role or None, name)
        return rows[0]["value"] if rows else None

    def alter(self, name: str, value: str | None, scope: Scope = SYSTEM) -> None:
        """Set or resets a parameter in its scope; for the system nothing takes effect before `reload`.

        Raises:
            ServerProblem: Refused, in the server's words; the hint names what it would take.
            ConnectionProblem: The connection went away; whether it was written is not known.
        """
        try:
            self._run(statement(name, value, scope))
        except psycopg.OperationalError as error:
            if self._connection.broken or self._connection.closed:
                raise ConnectionProblem(f"{self._conninfo.describe()}: {server_words(error)}") from None
            raise self._refused(error, name, scope) from None
        except psycopg.Error as error:
            raise self._refused(error, name, scope) from None
        except UnicodeError as error:
            raise not_text(error) from None

    def alter_marker(self, name: str, text: str | None, scope: Scope) -> None:
        """Write or remove a marker. Raises as `alter`.

        ALTER SYSTEM takes a name that the server does not know only where the session has it (before 17; to remove it
        also later). A pooler may lend another session for the second statement: then it is tried again.
        """
        attempts = 1 if self.direct else _ATTEMPTS
        for attempt in range(1, attempts + 1):
            if scope.is_system:
                self._run(f"SET {identifier(*name.split('.'))} = ''")
            try:
                self.alter(name, text, scope)
            except ServerProblem as problem:
                if problem.sqlstate != _UNKNOWN_NAME or attempt == attempts:
                    raise
            else:
                return

    def reload(self, names: Sequence[str]) -> tuple[str, tuple[Parameter, ...]]:
        """Reload the files, wait until this session has read them again, and read parameters in it.

        Behind a pooler in one transaction: the next one may be in a session that has not read the files yet.

        Returns:
            "" when it has; else why not, for instance the line of a file that has an error. And the parameters that
            the server shows: not those whose library is not loaded.
        """
        if self.direct:
            return self._read_again(), self.parameters(names)
        with self._one_session():
            return self._read_again(), self.parameters(names)

    def plain_words(self) -> PlainWords:
        """Return a context that turns psycopg's exceptions into ours."""
        return PlainWords(self._conninfo)

    def try_rows(self, text: str, *arguments: object) -> list[dict[str, Any]] | None:
        """Return the rows of a query of ours; None where the server refuses it, to this role or at all."""
        try:
            with self.plain_words():
                return self.rows(text, *arguments)
        except ServerProblem:
            return None

    @property
    def identity(self) -> tuple[str, str]:
        """Role and database of this connection."""
        return self._connection.info.user, self._connection.info.dbname

    def _read_again(self) -> str:
        before = self._value(_LOADED)
        self._value("SELECT pg_reload_conf()")
        deadline = time.monotonic() + _RELOAD_DEADLINE_S
        while time.monotonic() < deadline:
            if self._value(_LOADED) != before:
                return ""
            time.sleep(_POLL_S)
        rows = self.rows("SELECT sourcefile, sourceline, error FROM pg_file_settings WHERE error IS NOT NULL")
        faults = [f"{row['sourcefile']}:{row['sourceline']}: {row['error']}" for row in rows]
        return "; ".join(faults) or f"the server has not reloaded its files within {_RELOAD_DEADLINE_S:.0f} s"

    def abort(self) -> None:
        """Make a call that hangs in another thread fail at once."""
        cut(self._connection)

    def close(self) -> None:
        """Close the session."""
        self._own.pids.discard(self._pid)
        self._connection.close()

    def _refused(self, error: psycopg.Error, name: str, scope: Scope) -> ServerProblem:
        message = joined_notes(error.diag.message_primary or "", error.diag.message_detail or "") or str(error)
        state = sqlstate_of(error)
        if scope.is_system and FILE_NAME in message and not state.startswith(_NOT_OF_THE_FILE):
            hint = ELSEWHERE
            state = ""
        elif state == _INSUFFICIENT_PRIVILEGE:
            names = quoted(name), quoted(self._conninfo.user)
            act = "ALTER SYSTEM" if scope.is_system else "SET"
            hint = "a superuser can allow it: GRANT {} ON PARAMETER {} TO {}  (PostgreSQL 15+)".format(act, *names)
        elif state == _NOT_SUPPORTED and scope.is_system and self._is_switched_off():
            message = _SWITCHED_OFF
            hint = "set it to on, reload, then `pgtop-tune revert`; until then the value stays in force"
        elif state in STATEMENT_HINTS:
            hint = STATEMENT_HINTS[state]
        else:
            parameters = self.parameters([name])
            unknown = _NO_LIBRARY if "." in name else ""
            hint = error.diag.message_hint or (allowed(parameters[0]) if parameters else unknown)
        return ServerProblem(message, hint, state)

    def _value(self, text: str) -> Any:
        return next(iter(self.rows(text)[0].values()))

    def rows(self, text: str, *arguments: object) -> list[dict[str, Any]]:
        """Return the rows of a query of ours."""
        if self.direct or self._connection.info.transaction_status == _IN_TRANSACTION:
            return self._run(text, *arguments).fetchall()
        with self._one_session():
            return self._run(text, *arguments).fetchall()

    @contextmanager
    def _one_session(self) -> Iterator[None]:
        """A transaction, which a pooler gives one session to, with names looked up in pg_catalog."""
        with self._connection.transaction():
            self._own.calls += 2
            self._own.transactions += 1
            self._run(f"SELECT {pin(local=True)}")
            yield

    def _run(self, text: str, *arguments: object) -> psycopg.Cursor[dict[str, Any]]:
        statement_text = marked(text)
        started = time.perf_counter()
        try:
            return self._connection.execute(statement_text.encode(), arguments or None)
        finally:
            self._own.statements += 1
            self._own.calls += 1
            self._own.transactions += self._connection.info.transaction_status != _IN_TRANSACTION
            self._own.statement_ms += (time.perf_counter() - started) * 1000


def allowed(parameter: Parameter) -> str:
    """Return the values that a parameter takes, as a hint: "from 2 to 2147483647 MB, now 1GB"."""
    now = f"now {parameter.shown}" if parameter.shown else "now it is empty"
    if parameter.vartype == "bool":
        return f"on or off, {now}"
    if parameter.enumvals:
        return f"one of {', '.join(parameter.enumvals)}, {now}"
    if parameter.min_val and parameter.max_val:
        unit = f" in units of {parameter.unit}" if parameter.unit else ""
        return f"from {parameter.min_val} to {parameter.max_val}{unit}, {now}"
    return f"its value is {parameter.shown}" if parameter.shown else "its value is empty now"


def _state_of(error: psycopg.OperationalError, conninfo: ConnInfo) -> str:
    if not refused_in_other_words(error):
        return ""
    from pgtop_tune.postgres.server.read_only_connection import refused_with

    return refused_with(conninfo)
