"""The client's side: pgbench's threads, think time, the network, poolers, connecting for each transaction.

While it is the client's turn the server has nothing to do, whatever the reason. One rule has that time, the first whose
condition holds: new sessions, a pooler's queue, a thread of pgbench that never sleeps, pgbench without a CPU, the way
to another machine, thinking.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from pgtop_tune.base.units import count, with_ms
from pgtop_tune.diagnosis.facts import FULL, THINK, WINDOW_S, Facts, Statement
from pgtop_tune.diagnosis.finding import FindingKind
from pgtop_tune.diagnosis.rule import FindingRule, Hit, culprit_of, evidence, explain, page, plural, short_name
from pgtop_tune.diagnosis.rules.statements import is_savepoint, rates_of, savepoints_per_s
from pgtop_tune.metrics import host_details, pooler, sections, server
from pgtop_tune.metrics.active_sessions import CLIENT_BACKEND
from pgtop_tune.metrics.blockers import IDLE_IN_TRANSACTION
from pgtop_tune.metrics.client_bound import DEMAND
from pgtop_tune.model.statements import first_word
from pgtop_tune.model.waits import LOAD_APPLICATION

_CONNECTS: Final = 10.0
_PER_TRANSACTION: Final = 0.1
_STORM: Final = 0.5
"""Share of a load of others that its new sessions take: a session costs some ms of CPU, a short transaction less."""
_WAITING: Final = 1.0
_WAIT_OF_L: Final = 0.1
_STUCK_MS: Final = 1000.0
_HELD: Final = 0.5
_TENTH_MS: Final = 100.0
_THINKS: Final = 0.4
_IN_TRANSACTION: Final = 0.5
_QUEUE: Final = 0.1
_FULL_MACHINE: Final = 90.0
_LINK: Final = 90.0
_WRITES: Final = 0.1
_DROPS: Final = 1.0
_MANY_STATEMENTS: Final = 10.0
"""Executions per transaction from which on one statement could do the work of all."""
_MOST_CALLS: Final = 0.5
_LOCAL: Final = ("local", "127.0.0.1", "::1")
_OTHER: Final = "other"
_NAME: Final = 24


def _storms(facts: Facts) -> bool:
    if facts.connects < _CONNECTS or not facts.tps:
        return False
    # New sessions of a growing pool are not one for each transaction.
    ended = facts.connects - facts.more_sessions
    return ended >= max(_CONNECTS, _PER_TRANSACTION * facts.tps)


def _pool_wait_ms(facts: Facts) -> float:
    """Return the ms that a transaction waits for a server connection of a pooler; of our load at most its latency.

    Of a load of others L begins behind the pooler, and does not hold this wait.
    """
    waiting = max(pooler.WAITING(facts.interval).values(), default=0.0)
    counted = max((row.wait_ms or 0.0 for row in pooler.traffic(facts.interval)), default=0.0)
    longest = max(pooler.MAX_WAIT(facts.interval).values(), default=0.0)
    if waiting < _WAITING:
        return 0.0
    wait_ms = counted or longest or (1000.0 * waiting / facts.tps if facts.tps else 0.0)
    return min(wait_ms, facts.latency_ms) if facts.run else wait_ms


def _pooled_ms(facts: Facts) -> float:
    """Return the ms of a transaction that goes through a pooler, its wait there included; 0 where it is not known.

    Of a load of others the pooler counts it: the server counts no transactions that touch no table, and its L with them.
    """
    if facts.run:
        return facts.latency_ms
    xact_ms = max((row.xact_ms or 0.0 for row in pooler.traffic(facts.interval)), default=0.0)
    return facts.once(_pool_wait_ms) + xact_ms if xact_ms else 0.0


def _queues_at_pool(facts: Facts) -> bool:
    pooled_ms = facts.once(_pooled_ms)
    # It is not known where no transaction passes, or the pooler hides the server.
    return facts.once(_pool_wait_ms) >= (_WAIT_OF_L * pooled_ms if pooled_ms else _STUCK_MS) > 0


def _holders(facts: Facts, servers: int) -> str:
    """Return ": its 2 connections are held in client think time", or that they are in use."""
    samples = facts.interval.recent(sections.activity, WINDOW_S)
    idle = sum(row.state in IDLE_IN_TRANSACTION for sample in samples for row in sample.backends)
    is_held = idle >= _HELD * servers * len(samples) > 0
    subject = "1 connection is" if servers == 1 else f"{servers} connections are"
    return f": its {subject} held in client think time" if is_held else f": its {subject} in use"


def _never_sleeps(facts: Facts) -> bool:
    return facts.generator is not None and facts.generator.threads > 0 and facts.generator.bound


def _has_no_cpu(facts: Facts) -> bool:
    load = facts.generator
    if load is None or load.busiest_demand is None or load.most_queued is None or (facts.busy or 0.0) < FULL:
        return False
    return load.busiest_demand >= DEMAND and load.most_queued > load.busiest_demand - load.most_queued


def _thinks(facts: Facts) -> bool:
    if not facts.b(THINK) >= _THINKS * facts.latency_ms > 0:
        return False
    relaxed = (facts.busy or 0.0) < _FULL_MACHINE or facts.queue_ms < _QUEUE * facts.latency_ms
    if facts.run is None:
        # The clients of others are not known: they think too long where their transactions have many statements.
        return facts.once(_repeated) is not None
    has_thinkers = facts.in_transaction >= _IN_TRANSACTION * facts.run.clients > 0
    return has_thinkers and (relaxed or facts.once(_repeated) is not None)


class _Repeated(Struct, frozen=True):
    """A short statement that each transaction runs many times.

    Attributes:
        per_transaction: Executions per transaction.
        each_ms: Time of an execution.
        savepoints: Savepoints per transaction.
    """

    statement: Statement
    per_transaction: float
    each_ms: float
    savepoints: float

    @property
    def says(self) -> str:
        """Return "200 executions per transaction of SELECT …"."""
        by_savepoint = " in savepoints" if self.savepoints >= _MANY_STATEMENTS else ""
        return f"{self.per_transaction:.0f} executions{by_savepoint} per transaction of {self.statement.words}"

    @property
    def advice(self) -> str:
        """Return the way to run fewer of them."""
        rows = "fetch the rows with one statement (= ANY($1), or a join)" if self.reads else (
            "change the rows with one statement (VALUES or unnest), or send a pipeline"
        )  # fmt: skip
        return f"{rows}, and without a savepoint for each" if self.savepoints >= _MANY_STATEMENTS else rows

    @property
    def reads(self) -> bool:
        """Return whether it reads rows."""
        return first_word(self.statement.text) == "SELECT"


def _repeated(facts: Facts) -> _Repeated | None:
    """Return the statement that transactions repeat; None where they have few statements."""
    calls = [(rate.grown.per_s("calls") or 0.0, rate) for rate in facts.once(rates_of) if rate.counters.toplevel]
    least = _MANY_STATEMENTS * facts.tps
    if not facts.tps or max((per_s for per_s, _ in calls), default=0.0) < least:
        return None
    repeatable = [pair for pair in calls if not is_savepoint(facts.text_of(pair[1].counters.queryid))]
    rate = max(repeatable, key=lambda pair: pair[0], default=(0.0, None))[1]
    if rate is None:
        return None
    # Drivers that send small integers as smallint make several statements of one text.
    text = facts.text_of(rate.counters.queryid)
    most = sum(per_s for per_s, one in repeatable if facts.text_of(one.counters.queryid) == text)
    if most < max(least, _MOST_CALLS * sum(per_s for per_s, _ in repeatable)):
        return None
    savepoints = savepoints_per_s(facts) / facts.tps
    counters = rate.counters
    statement = Statement(text, counters.queryid, counters.datname or "", 1.0)
    return _Repeated(statement, most / facts.tps, rate.mean_ms or 0.0, savepoints) if statement.is_culprit else None


def _is_far(facts: Facts) -> bool:
    activity = facts.interval.now(sections.activity)
    if activity is None or not _thinks(facts):
        return False
    clients = [row.client for row in activity.backends if row.application_name == LOAD_APPLICATION and row.client]
    return bool(clients) and all(client not in _LOCAL for client in clients)


_OWNERS: Final[tuple[tuple[str, Callable[[Facts], bool]], ...]] = (
    ("conn.storm", _storms),
    ("pool.queue", _queues_at_pool),
    ("client.thread", _never_sleeps),
    ("cpu.pgbench", _has_no_cpu),
    ("net.rtt", _is_far),
    ("client.think", _thinks),
)


def _owner(facts: Facts) -> str:
    return next((rule for rule, holds in _OWNERS if holds(facts)), "")


def turn_owner(facts: Facts) -> str:
    """Return the rule that has the time of the client's turn; "" for none."""
    return facts.once(_owner)


def _statements(facts: Facts) -> float | None:
    """Return the statements per transaction."""
    qps = facts.of(server.QPS)
    return qps / facts.tps if qps and facts.tps else None


def _storm(facts: Facts) -> Hit | None:
    if turn_owner(facts) != "conn.storm":
        return None
    # Without a load of ours the client's time is not known: its sessions are too short for samples.
    ended = facts.tps if facts.run is not None else facts.server_tps
    per_session, impact_ms = ended / facts.connects, facts.b(THINK, _OTHER) if facts.run is not None else None
    of_time = f"; {facts.share_text(impact_ms)}" if impact_ms is not None else ""
    every = "each transaction" if per_session < 1.5 else f"{per_session:.0f} transactions"
    application = _newest_application(facts)
    source = f" from {application}" if application else ""
    return Hit(
        sentence=f"a new connection for {every}{source}: {count(facts.connects)} per second{of_time}",
        short=f"a new connection for {every}{source}: {count(facts.connects)}/s",
        culprit=application,
        impact_ms=impact_ms,
        share=_STORM,
        evidence=evidence(
            ("new connections", f"{count(facts.connects)}/s"),
            ("transactions", f"{count(ended)}/s"),
            ("outside the server", with_ms(impact_ms) if impact_ms is not None else None),
        ),
        next_step="use a pooler, or keep connections open in the client",
        deeds=(page("2", "shows the newest sessions by application"),),
    )


def _newest_application(facts: Facts) -> str:
    """Return the application of most sessions that began within ten seconds; "" for none with a name."""
    activity = facts.interval.now(sections.activity)
    since_ms = activity.now_ms - 1000.0 * WINDOW_S if activity is not None else 0.0
    names = Counter(
        row.application_name
        for row in (activity.backends if activity is not None else ())
        if row.backend_type == CLIENT_BACKEND and row.application_name and (row.backend_start_ms or 0) >= since_ms
    )
    return short_name(names.most_common(1)[0][0] or "", _NAME) if names else ""


def _wait_words(wait_ms: float) -> str:
    return with_ms(wait_ms) if wait_ms < _TENTH_MS else f"{wait_ms / 1000.0:.1f} s"


def _pool(facts: Facts) -> Hit | None:
    if turn_owner(facts) != "pool.queue":
        return None
    pools = pooler.pool_rows(facts.interval)
    worst, wait_ms = pools[0], facts.once(_pool_wait_ms)
    waiting, servers = worst.pool.cl_waiting or 0, worst.servers
    pooled_ms = facts.once(_pooled_ms)
    where = f"the pooler, pool {short_name(worst.pool.id)}" if len(pools) > 1 else "the pooler"
    sentence = f"{plural(waiting, 'client', 'wait')} {_wait_words(wait_ms)} at {where}"
    return Hit(
        sentence=sentence + (_holders(facts, servers) if servers else ""),
        short=sentence,
        impact_ms=wait_ms if facts.run and facts.latency_ms else None,
        share=wait_ms / pooled_ms if pooled_ms else 1.0,
        evidence=evidence(
            ("waiting clients", f"{waiting}"),
            ("wait for a connection", with_ms(wait_ms)),
            ("server connections", f"{servers}" if servers else None),
            ("time on the server", with_ms(pooled_ms - wait_ms) if pooled_ms else None),
        ),
        next_step=(
            "shorten the largest part of the server's time; then enlarge the pool by half."
            " Not the cause if the wait moves into the server"
        ),
        deeds=(page("0", "shows the pools"), page("2", "shows the sessions that hold its connections")),
    )


def _thread(facts: Facts) -> Hit | None:
    load = facts.generator
    if load is None or turn_owner(facts) != "client.thread":
        return None
    impact_ms = facts.b(THINK)
    queued = f" and waits for a CPU {load.most_queued:.0f} %" if (load.most_queued or 0.0) >= 1.0 else ""
    return Hit(
        sentence=f"pgbench is the bottleneck: one of its threads is busy {load.busiest_cpu or 0.0:.0f} % of the time{queued}",
        short=f"pgbench is the bottleneck: one thread is {load.busiest_cpu or 0.0:.0f} % busy",
        impact_ms=impact_ms,
        evidence=evidence(
            ("busiest thread", f"{load.busiest_cpu:.0f} % of a CPU" if load.busiest_cpu is not None else None),
            ("with its waits for a CPU", f"{load.busiest_demand:.0f} %" if load.busiest_demand is not None else None),
            ("client think/network time", with_ms(impact_ms)),
        ),
        next_step=f"{load.advice}. Not the cause if throughput stays the same while the server's CPUs are idle",
        deeds=(page("7", "shows pgbench's threads"),),
    )


def _of_repeated(facts: Facts, sentence: str, short: str) -> dict[str, Any]:
    """Return the words of a hit: with the statement that transactions repeat, where there is one."""
    repeated = facts.once(_repeated)
    if repeated is None:
        return {"sentence": sentence, "short": short}
    culprit = culprit_of(repeated.statement)
    return {
        "sentence": f"{sentence}; {repeated.says}, {with_ms(repeated.each_ms)} each",
        "middle": (f"{short}; {repeated.says}", repeated.says),
        "short": f"{repeated.per_transaction:.0f} per transaction: {repeated.statement.words}",
        "culprit": culprit,
        "statement": repeated.statement.words,
    }


def _fold(facts: Facts) -> str:
    repeated = facts.once(_repeated)
    return "combine statements: one statement, a function, or pipelining" if repeated is None else repeated.advice


def _think(facts: Facts) -> Hit | None:
    if turn_owner(facts) != "client.think":
        return None
    impact_ms, statements = facts.b(THINK), _statements(facts)
    each_ms = impact_ms / (statements - 1.0) if statements and statements >= 1.5 else None
    inside = f"the server waits for the client inside transactions: {with_ms(impact_ms)} of {with_ms(facts.latency_ms)}"
    return Hit(
        **_of_repeated(facts, inside, f"the server waits for the client: {facts.percent(impact_ms)}"),
        impact_ms=impact_ms,
        evidence=evidence(
            ("client think/network time", with_ms(impact_ms)),
            ("idle in transaction", f"{facts.in_transaction:.1f} sessions"),
            ("statements per transaction", f"{statements:.1f}" if statements else None),
            ("per statement", with_ms(each_ms) if each_ms is not None else None),
        ),
        next_step=f"{_fold(facts)}. Not the cause if client think time stays the same",
        deeds=(page("2", "shows the sessions that are idle in transaction"),),
        looks=facts.in_transaction * facts.waits.looks,
    )


def _rtt(facts: Facts) -> Hit | None:
    if turn_owner(facts) != "net.rtt":
        return None
    impact_ms, statements = facts.b(THINK), _statements(facts)
    each_ms = impact_ms / (statements - 1.0) if statements and statements >= 1.5 else impact_ms
    per = f"; {statements:.0f} statements per transaction" if statements and not facts.once(_repeated) else ""
    takes = f"each round trip takes {with_ms(each_ms)}"
    return Hit(
        **_of_repeated(facts, f"{takes}: {facts.share_text(impact_ms)}{per}", takes),
        impact_ms=impact_ms,
        evidence=evidence(
            ("client think/network time", with_ms(impact_ms)),
            ("statements per transaction", f"{statements:.1f}" if statements else None),
            ("per statement", with_ms(each_ms)),
        ),
        next_step=f"run pgbench near the server, or {_fold(facts)}",
        deeds=(page("2", "shows sessions with the address of their client"),),
        agreed=False,
    )


def _net_full(facts: Facts) -> Hit | None:
    busy = facts.by(host_details.NETWORK_BUSY)
    link = max(busy, key=lambda interface: busy[interface], default="")
    clients = facts.run.clients if facts.run else max(facts.waits.active, 1.0)
    writing, full = facts.s("client:clientwrite"), busy.get(link, 0.0) >= _LINK
    if not full and writing < _WRITES * clients:
        return None
    impact_ms = facts.b("client:clientwrite") + (facts.b(THINK) * busy[link] / 100.0 if full else 0.0)
    sentence = (
        f"{short_name(link)} uses {busy[link]:.0f} % of its link speed"
        if full
        else f"{writing:.1f} sessions send results to slow clients"
    )
    statement = facts.statement("client:clientwrite")
    by = f": {statement.words}" if statement is not None else ""
    return Hit(
        sentence=f"{sentence}{by}: at most {facts.share_text(impact_ms)}",
        short=f"{sentence}{by}",
        culprit=culprit_of(statement),
        statement=statement.words if statement is not None else "",
        impact_ms=min(impact_ms, facts.latency_ms),
        evidence=evidence(
            ("link", f"{busy[link]:.0f} %" if link else None),
            ("sessions in ClientWrite", f"{writing:.2f}"),
        ),
        next_step="return fewer columns and rows (LIMIT), or compress the traffic",
        deeds=(*explain(statement, "shows how many rows it returns"), page("7", "shows the network")),
        looks=None if full else facts.n("client:clientwrite"),
    )


def _loss(facts: Facts) -> Hit | None:
    drops, errors = facts.by(host_details.NETWORK_DROPS), facts.by(host_details.NETWORK_ERRORS)
    lost = {interface: drops.get(interface, 0.0) + errors.get(interface, 0.0) for interface in {*drops, *errors}}
    link = max(sorted(lost), key=lambda interface: lost[interface], default="")
    client_ms = facts.b("client:*")
    if lost.get(link, 0.0) < _DROPS or client_ms < _QUEUE * facts.latency_ms:
        return None
    return Hit(
        sentence=f"{short_name(link)} loses {plural(lost[link], 'packet')} per second",
        impact_ms=None,
        evidence=evidence(("dropped", f"{drops.get(link, 0.0):.1f}/s"), ("errors", f"{errors.get(link, 0.0):.1f}/s")),
        next_step="check the interface's ring size and MTU; drops of unwanted protocols count, too",
        deeds=(page("7", "shows the network"),),
    )


RULES: Final = (
    FindingRule(
        id="conn.storm",
        page="2",
        needs=(sections.databases, sections.waits),
        find=_storm,
        of_few=True,
        before=("client.think", "lw.locks", "lw.snapshot"),
    ),
    FindingRule(id="pool.queue", page="0", needs=(sections.pooler,), find=_pool, sure_of_cpu=True),
    FindingRule(
        id="client.thread",
        page="7",
        needs=(sections.bench, sections.processes),
        find=_thread,
        sure_of_cpu=True,
    ),
    FindingRule(id="client.think", page="3", needs=(sections.waits,), find=_think, of_few=True),
    FindingRule(id="net.rtt", page="2", needs=(sections.bench, sections.waits), find=_rtt),
    FindingRule(id="net.full", page="7", needs=(sections.waits,), find=_net_full),
    FindingRule(id="net.loss", kind=FindingKind.NOTE, page="7", needs=(sections.network,), find=_loss),
)
