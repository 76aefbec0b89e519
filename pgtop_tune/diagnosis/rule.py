"""A rule: one row with its needs, its condition and its words; `Hit` is what its function gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Struct

from pgtop_tune.base.sql_quoting import literal
from pgtop_tune.base.units import duration
from pgtop_tune.diagnosis.facts import Facts, RootLook, Statement, beginning
from pgtop_tune.diagnosis.finding import BRIEF_CELLS, SHORT_CELLS, Deed, DeedKind, FindingKind
from pgtop_tune.metrics.active_sessions import CLIENT_BACKEND
from pgtop_tune.metrics.catalogue import Section
from pgtop_tune.metrics.vacuum import PREPARED, SLOT, SLOT_CATALOG, HorizonHolder
from pgtop_tune.model.backend_action import PreparedAct, prepared_statement
from pgtop_tune.model.postgres import HIDDEN_QUERY, Backend
from pgtop_tune.model.statements import PLAIN_QUERIES, first_word

LEAST: Final = 0.10
"""Share of L from which on a latency finding comes in."""


class Hit(Struct, frozen=True, kw_only=True):
    """The condition of a rule holds.

    Attributes:
        sentence: Without confidence, beginning in lower case unless a name begins it.
        short: As `Finding.short`; "" for the sentence.
        middle: Forms between both, longest first. Clauses after a semicolon fall away by themselves.
        brief: The form for a screen of 60 columns; "" for a cut `short`.
        culprit: As `Finding.culprit`; it stands in every form.
        statement: The statement that it is about; "" without one.
        impact_ms: ms of each transaction; at most L.
        share: As `Finding.share`; of a latency finding left to the ranking.
        evidence, next_step, deeds: As in `Finding`.
        looks: Number of looks that saw its waits; None where it is not from looks.
        agreed: Whether a counter or a number of the host says the same.
        left_s: Time until a limit is reached; None where no time is known.
        blocks: No transaction ends while it lasts (X = 0): it is an outage.
        note: Worth a line, and too small to be ranked by its impact.
        before: Symptoms of this cause, beside those of its rule.
    """

    sentence: str
    short: str = ""
    middle: tuple[str, ...] = ()
    brief: str = ""
    culprit: str = ""
    statement: str = ""
    impact_ms: float | None = None
    share: float | None = None
    evidence: tuple[tuple[str, str], ...] = ()
    next_step: str = ""
    deeds: tuple[Deed, ...] = ()
    looks: float | None = None
    agreed: bool = True
    left_s: float | None = None
    blocks: bool = False
    note: bool = False
    before: tuple[str, ...] = ()

    def kind_of(self, rule: FindingRule) -> FindingKind:
        """Return the kind of finding that the hit makes of its rule."""
        return FindingKind.OUTAGE if self.blocks else FindingKind.NOTE if self.note else rule.kind


class FindingRule(Struct, frozen=True, kw_only=True):
    """One row.

    Attributes:
        id: Stable name.
        page: Key of the page with the evidence.
        needs: Sections without which it says nothing.
        find: Condition, impact and words; None where the condition does not hold.
        kind: Kind of its findings.
        least: Share of L from which on a latency finding comes in.
        before: Symptoms that this cause stands before.
        of_few: Whether it is looked at while hardly a session is active, because counters say it.
        sure_of_cpu: Whether it stays as sure on a full machine, because it is about the machine's CPUs.
    """

    id: str
    page: str
    needs: tuple[Section[Any], ...]
    find: Callable[[Facts], Hit | None]
    kind: FindingKind = FindingKind.LATENCY
    least: float = LEAST
    before: tuple[str, ...] = ()
    of_few: bool = False
    sure_of_cpu: bool = False


_NAME_CELLS: Final = 40
_OWNER_CELLS: Final = 24
_BRIEF_STATEMENT: Final = 20
_FEWEST_WORDS: Final = 8
_CLAUSE: Final = "; "
_AUTOVACUUM: Final = "autovacuum: "
_SENDING: Final = "client:clientwrite"


def plural(number: float, noun: str, verb: str = "") -> str:
    """Return "1 session", "12 sessions"; with a verb "1 session waits", "12 sessions wait"."""
    subject = f"{number:.0f} {noun}{'' if round(number) == 1 else 's'}"
    return f"{subject} {verb}{'s' if round(number) == 1 else ''}" if verb else subject


def evidence(*rows: tuple[str, str | None]) -> tuple[tuple[str, str], ...]:
    """Return evidence without values that are not known."""
    return tuple((label, value) for label, value in rows if value)


def short_name(text: str, cells: int = _NAME_CELLS) -> str:
    """Return a foreign name on one line, cut."""
    return beginning(text, cells)


def culprit_of(statement: Statement | None) -> str:
    """Return the words with which the statement begins, for `Hit.culprit`; "" without one."""
    return "" if statement is None else statement.words[:_BRIEF_STATEMENT].rstrip()


def short_sentence(text: str, culprit: str = "", cells: int = SHORT_CELLS) -> str:
    """Return at most so many cells: cut at the last semicolon or comma that fits, else with an ellipsis.

    The culprit's name stays: the words before it are shortened.
    """
    if len(text) <= cells:
        return text
    end_of_name = text.find(culprit) + len(culprit) if culprit in text else 0
    for mark in ("; ", ", ", ": "):
        end = text.rfind(mark, 0, cells + 1)
        if end > cells // 2 and end >= end_of_name:
            return text[:end]
    if end_of_name < cells:
        return text[: cells - 1].rstrip() + "…"
    name = culprit if len(culprit) < cells else culprit[: cells - 1] + "…"
    room = cells - len(name) - 2
    return f"{text[:room].rstrip()}… {name}" if room > _FEWEST_WORDS else name


def forms(sentence: str, middle: Sequence[str], short: str, culprit: str, brief: str = "") -> tuple[str, ...]:
    """Return a sentence in all lengths, longest first: whole, with fewer clauses, those of its rule, short, brief."""
    clauses = sentence.split(_CLAUSE)
    cut = [_CLAUSE.join(clauses[:count]) for count in range(len(clauses) - 1, 0, -1)]
    between = [text for text in (*cut, *middle) if culprit in text and len(short) < len(text) < len(sentence)]
    last = short_sentence(brief or short, culprit, BRIEF_CELLS)
    return tuple(dict.fromkeys((sentence, *sorted(between, key=len, reverse=True), short, last)))


def stage(name: str, direction: str, effect: str, value: str | None = None) -> Deed:
    """Return the deed that stages a parameter, with its value where that is known."""
    return Deed(kind=DeedKind.STAGE_PARAMETER, target=name, direction=direction, effect=effect, value=value)


def sql(statement: str, effect: str, database: str = "") -> Deed:
    """Return the deed that copies a statement, or runs it."""
    return Deed(kind=DeedKind.COPY_SQL, target=statement, database=database, effect=effect)


def end(kind: DeedKind, backend: Backend, effect: str) -> Deed:
    """Return the deed that cancels the statement of a session or ends it."""
    return Deed(kind=kind, target=str(backend.pid), backend=(backend.pid, backend.backend_start_ms), effect=effect)


def explain(statement: Statement | None, effect: str) -> tuple[Deed, ...]:
    """Return the deed that shows the plan of a statement; none without a statement that has one."""
    if statement is None or first_word(statement.text) not in PLAIN_QUERIES:
        return ()
    return (
        Deed(
            kind=DeedKind.EXPLAIN,
            target=statement.text,
            query_id=statement.query_id,
            database=statement.database,
            effect=effect,
        ),
    )


def page(key: str, effect: str) -> Deed:
    """Return the deed that opens a page."""
    return Deed(kind=DeedKind.OPEN_PAGE, target=key, effect=effect)


def session_name(backend: Backend) -> str:
    """Return "session 9846 (erp_batch)": by its application, else its role; of a worker its kind."""
    if backend.backend_type != CLIENT_BACKEND:
        return f"{short_name(backend.backend_type)} {backend.pid}"
    owner = short_name(backend.application_name or backend.usename or "", _OWNER_CELLS)
    return f"session {backend.pid} ({owner})" if owner else f"session {backend.pid}"


def root_name(root: RootLook) -> str:
    """Return the name of the root of the chain: "session 9846 (erp_batch)", "prepared transaction 'order-4711'"."""
    if root.pid is None:
        return "each other"
    if root.pid == 0:
        return f"prepared transaction '{short_name(root.gid, _OWNER_CELLS)}'" if root.gid else "a prepared transaction"
    return f"session {root.pid}" if root.backend is None else session_name(root.backend)


def root_words(root: RootLook) -> str:
    """Return the root of the chain and its activity: "session 9846 (erp_batch), idle in transaction 42 s"."""
    activity = root_activity(root)
    mark = " " if root.pid == 0 else ", "
    return f"{root_name(root)}{mark}{activity}" if activity else root_name(root)


def root_activity(root: RootLook) -> str:
    """Return the activity of the root: "idle in transaction 42 s"; "" where it is not known."""
    backend = root.backend
    if root.pid == 0 and root.gid:
        where = f"in {short_name(root.database)}, " if root.database else ""
        return f"{where}{duration(root.prepared_s)} old" if root.prepared_s else where.removesuffix(", ")
    if backend is None or backend.state is None:
        return ""
    if root.idle_s:
        return f"idle in transaction {duration(root.idle_s)}"
    if backend.state == "idle":
        return f"idle {duration(root.state_s)}"
    doing = "sending its result" if root.wait == _SENDING else "running"
    running = f"{doing} {duration(root.runs_s)}" if root.runs_s else doing
    statement = statement_of(backend)
    return f"{running}: {statement}" if statement and not root.of_load else running


def statement_of(backend: Backend | None) -> str:
    """Return the beginning of the statement that a session runs or ran last; "" where it is not known."""
    if backend is None or backend.query in (None, HIDDEN_QUERY):
        return ""
    return short_name((backend.query or "").removeprefix(_AUTOVACUUM))


def root_next_step(root: RootLook) -> str:
    """Return the next step for the root of a chain."""
    if root.pid is None:
        return "wait: the server ends one of these sessions after deadlock_timeout"
    if root.pid == 0:
        if not root.gid:
            return "ROLLBACK PREPARED or COMMIT PREPARED the transaction (page 9)"
        where = f" (in {short_name(root.database)})" if root.database else ""
        return f"ROLLBACK PREPARED {short_name(literal(root.gid))}{where}, or COMMIT PREPARED"
    if root.idle_s:
        return f"end {root_name(root)}, or have its client commit. Not the cause if the queue remains"
    if root.backend is None or root.backend.backend_type != CLIENT_BACKEND:
        return f"wait for {root_name(root)}; the others can be canceled meanwhile"
    if root.backend.state == "idle":
        return f"{root_name(root)} holds a lock of its session: end it, or have its client release the lock"
    if root.backend.state is None:
        return f"find out who uses {root_name(root)}: its activity is hidden from this role (pg_monitor shows it)"
    for_s = f" for {duration(root.runs_s)}" if root.runs_s else ""
    return f"{root_name(root)} has run {statement_of(root.backend) or 'its statement'}{for_s}: cancel it, or wait"


def root_deeds(facts: Facts, root: RootLook) -> tuple[Deed, ...]:
    """Return the deeds about the session or the prepared transaction at the end of the chain."""
    frees = f"frees {plural(root.blocked, 'session')}"
    if root.pid == 0 and root.gid:
        return (
            sql(prepared_statement(PreparedAct.ROLLBACK, root.gid), f"{frees}; its changes are lost", root.database),
            sql(prepared_statement(PreparedAct.COMMIT, root.gid), f"{frees}; its changes are kept", root.database),
        )
    if root.backend is None:
        return ()
    if root.idle_s:
        name, value = "idle_in_transaction_session_timeout", facts.shown("idle_in_transaction_session_timeout")
        now = "now off" if value in ("0", "") else f"now {value}"
        return (
            end(DeedKind.END_SESSION, root.backend, f"{frees}; its transaction is rolled back"),
            stage(name, "raise", f"{now}: prevents the next one"),
        )
    if root.backend.state == "idle":
        return (end(DeedKind.END_SESSION, root.backend, f"{frees}; its lock is released"),)
    if root.backend.backend_type != CLIENT_BACKEND:
        # An autovacuum against wraparound begins anew at once.
        ends_sooner = stage("autovacuum_vacuum_cost_limit", "raise", "it ends sooner")
        return ends_sooner, end(DeedKind.CANCEL, root.backend, f"{frees}; it begins anew later")
    return (
        end(DeedKind.CANCEL, root.backend, f"{frees} once its transaction ends"),
        end(DeedKind.END_SESSION, root.backend, f"{frees}; its transaction is rolled back"),
    )


def holder_deeds(holder: HorizonHolder) -> tuple[Deed, ...]:
    """Return the deeds that end a holder of dead rows."""
    effect = "vacuum removes the dead rows afterwards"
    shows = page("9", "shows all holders of dead rows")
    if holder.kind == PREPARED:
        return sql(prepared_statement(PreparedAct.ROLLBACK, holder.name), f"{effect}; its changes are lost"), shows
    if holder.kind in (SLOT, SLOT_CATALOG):
        drops = sql(
            f"SELECT pg_drop_replication_slot({literal(holder.name)});", f"{effect}; its consumer must begin anew"
        )
        return drops, shows
    if holder.backend is None:
        return (shows,)
    pid = holder.backend[0]
    return Deed(kind=DeedKind.END_SESSION, target=str(pid), backend=holder.backend, effect=effect), shows


def waiting(
    facts: Facts,
    waits: tuple[str, ...],
    says: str,
    next_step: str,
    *,
    short: str = "",
    brief: str = "",
    label: str = "waits",
    more: tuple[tuple[str, str | None], ...] = (),
    deeds: tuple[Deed, ...] = (),
) -> Hit | None:
    """Return the hit that transactions spend time in some waits; None where they spend none.

    Args:
        waits: As for `Facts.b`.
        says: Beginning of the sentence, before the share of the time.
        short, brief: Shorter beginnings; "" for `says`, and for a cut one.
        label: Label of the time in the evidence.
        more: Further evidence.
    """
    impact_ms = facts.b(*waits)
    if impact_ms <= 0.0:
        return None
    statement = facts.statement(*waits)
    by = f"; {100 * statement.share:.0f} % by {statement.words}" if statement is not None else ""
    end_of_short = f": {statement.words}" if statement is not None else f": {facts.percent(impact_ms)}"
    return Hit(
        sentence=f"{says}: {facts.share_text(impact_ms)}{by}",
        middle=(f"{short or says}: {facts.percent(impact_ms)}{by}",),
        short=f"{short or says}{end_of_short}",
        brief=f"{brief}{end_of_short}" if brief else "",
        culprit=culprit_of(statement),
        statement=statement.words if statement is not None else "",
        impact_ms=impact_ms,
        evidence=evidence((label, facts.ms_text(impact_ms)), *more),
        next_step=next_step,
        deeds=(*deeds, *explain(statement, "shows how it gets there")),
        looks=facts.n(*waits),
    )
