"""pgbench's command line for a load.

Source: pgbench's documentation, options of 13 to 19. An option that this pgbench lacks is refused here (`_SINCE`).
The database is named by position, because -d means "debug" up to 16.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.base.sql_quoting import conninfo_value
from pgtop_tune.bench.locate import Pgbench
from pgtop_tune.bench.ports import LoadEndpoint
from pgtop_tune.bench.profiles import PROTOCOLS, Profile, Script
from pgtop_tune.model.bench import LoadSpec

UNTIL_STOPPED_S: Final = 100_000_000
"""Three years. A run with -T ends in order on SIGALRM, report and log included; without -T it would just die."""
MOST_CLIENTS: Final = 10_000
MOST_SCRIPTS: Final = 128
LOG_NAME: Final = "transactions"

_INT_MAX: Final = 2**31 - 1
_SEED_MAX: Final = 2**64 - 1
_VARIABLE: Final = re.compile(r"[A-Za-z0-9_]{1,60}")

_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.$-]*")


class _Bound(Struct, frozen=True):
    """A number of the spec, and what pgbench would not take."""

    number: Callable[[LoadSpec], float | None]
    low: float
    high: float
    message: str


_BOUNDS: Final = (
    _Bound(lambda spec: spec.clients, 1, MOST_CLIENTS, f"clients must be from 1 to {MOST_CLIENTS}"),
    _Bound(lambda spec: spec.threads, 0, 1000, "threads must be from 0 (as many as cores) to 1000"),
    _Bound(lambda spec: spec.duration_s, 1, UNTIL_STOPPED_S, f"the time must be from 1 to {UNTIL_STOPPED_S} seconds"),
    _Bound(lambda spec: spec.transactions, 1, _INT_MAX, f"transactions must be from 1 to {_INT_MAX} per client"),
    _Bound(lambda spec: spec.rate_per_s, 0.001, 10_000_000, "the rate must be from 0.001 to 10000000 per second"),
    _Bound(
        lambda spec: spec.latency_limit_ms, 0.001, 86_400_000, "the latency limit must be from 0.001 to 86400000 ms"
    ),
    _Bound(lambda spec: spec.max_tries, 0, _INT_MAX, f"tries must be from 0 (no limit) to {_INT_MAX}"),
    _Bound(lambda spec: spec.seed, 0, _SEED_MAX, f"the seed must be from 0 to {_SEED_MAX}"),
)
_REFUSALS: Final[tuple[tuple[Callable[[LoadSpec], object], str], ...]] = (
    (
        lambda spec: spec.duration_s is not None and spec.transactions is not None,
        "a duration and a number of transactions cannot be combined",
    ),
    (
        lambda spec: spec.phases and (spec.duration_s is not None or spec.transactions is not None),
        "phases say how long a load runs: it takes no duration and no number of transactions",
    ),
    (
        lambda spec: spec.through_outage and (spec.phases or spec.duration_s is None),
        "a load that goes through an outage takes a duration: no number of transactions and no phases",
    ),
    (
        lambda spec: spec.max_tries == 0 and spec.transactions is not None and spec.latency_limit_ms is None,
        "unlimited tries need a latency limit or a duration",
    ),
    (lambda spec: len(spec.scripts) > MOST_SCRIPTS, f"pgbench takes up to {MOST_SCRIPTS} scripts"),
    (
        lambda spec: any(not script.file or "\0" in script.file for script in spec.scripts),
        "a script needs a file name",
    ),
    (
        lambda spec: any(not 0 <= script.weight <= _INT_MAX for script in spec.scripts),
        f"the weight of a script must be from 0 to {_INT_MAX}",
    ),
    (
        lambda spec: spec.scripts and not any(script.weight for script in spec.scripts),
        "at least one script needs a weight above 0",
    ),
    (
        lambda spec: any(not _VARIABLE.fullmatch(name) for name, _ in spec.variables),
        "a variable name must be letters, digits and '_', at most 60 characters",
    ),
    (
        lambda spec: any("\0" in word for word in (*spec.further, *(value for _, value in spec.variables))),
        "a variable and an option cannot contain a zero byte",
    ),
)
"""Combinations that pgbench refuses, with the message."""
_SINCE: Final[tuple[tuple[int, Callable[[LoadSpec], object], str], ...]] = (
    (15, lambda spec: spec.max_tries is not None, "trying transactions again (--max-tries)"),
    (19, lambda spec: spec.continue_on_error, "continuing after an error (--continue-on-error)"),
)
"""The first major that has it, whether it is asked for, and what to call it."""


def check_spec(spec: LoadSpec) -> None:
    """Refuse a load that every pgbench would refuse, before it is started.

    Raises:
        LoadProblem: Says which figure and its range.
    """
    for bound in _BOUNDS:
        number = bound.number(spec)
        if number is not None and not bound.low <= number <= bound.high:
            raise LoadProblem(bound.message)
    if spec.protocol not in PROTOCOLS:
        raise LoadProblem(f"the protocol must be one of {', '.join(PROTOCOLS)}, not {spec.protocol!r}")
    for is_wrong, message in _REFUSALS:
        if is_wrong(spec):
            raise LoadProblem(message)


def check_version(spec: LoadSpec, pgbench: Pgbench) -> None:
    """Refuse options for which this pgbench is too old.

    Raises:
        LoadProblem: Says what, and which version has it.
    """
    for major, is_asked, feature in _SINCE:
        if is_asked(spec) and pgbench.version_num < major * 10_000:
            raise LoadProblem(
                f"{feature} needs pgbench {major} or later; {pgbench.path} is version {pgbench.version}",
                "pass another pgbench with --pgbench",
            )


def threads_for(spec: LoadSpec, cpus: int = 0) -> int:
    """Return pgbench's threads: one per core unless given, never more than clients.

    Args:
        cpus: Of its machine; 0 for those of this one.
    """
    return max(1, min(spec.threads or cpus or os.cpu_count() or 1, spec.clients))


def scripts_of(spec: LoadSpec, profile: Profile) -> tuple[Script, ...]:
    """Return the script files that run: the operator's own, else the profile's; none for a builtin script."""
    return tuple(Script(Path(script.file), script.weight) for script in spec.scripts) or profile.scripts


def run_argv(
    spec: LoadSpec,
    profile: Profile,
    pgbench: Pgbench,
    endpoint: LoadEndpoint,
    log_dir: Path,
    sampling_rate: float | None = None,
) -> list[str]:
    """Return the command line of a run; holds no password.

    -n always: without it pgbench vacuums and truncates its tables first, and no two runs start from the same state.
    --failures-detailed where pgbench has it: the log then says which kind a failure is.

    Args:
        sampling_rate: Share of the transactions that are logged; None for what suits the rate.

    Raises:
        LoadProblem: A spec that pgbench would refuse.
    """
    check_spec(spec)
    check_version(spec, pgbench)
    sampling_rate = sampling_rate or profile.sampling_rate(spec.rate_per_s)
    scripts = scripts_of(spec, profile)
    command = [str(pgbench.path), "-n", "-P", "1", "-c", str(spec.clients), "-j", str(threads_for(spec, pgbench.cpus))]
    command += ["-T", str(spec.duration_s or UNTIL_STOPPED_S)] if spec.transactions is None else []
    for flag, text in _given(spec):
        command += [flag, text]
    command += ["-C"] if spec.connect_per_transaction else []
    command += ["-r"] if spec.per_statement else []
    command += [f"--max-tries={spec.max_tries}"] if spec.max_tries is not None else []
    command += ["--continue-on-error"] if spec.continue_on_error else []
    command += ["--failures-detailed"] if pgbench.version_num >= 150000 else []
    command += [f"--random-seed={spec.seed}"] if spec.seed is not None else []
    command += ["-b", profile.builtin] if not scripts else []
    for script in scripts:
        command += ["-f", f"{script.file}@{script.weight}"]
    for name, value in spec.variables:
        command += ["-D", f"{name}={value}"]
    command += ["-l", f"--log-prefix={log_dir / LOG_NAME}"]
    if sampling_rate < 1.0:
        command.append(f"--sampling-rate={sampling_rate:.6g}")
    return [*command, *spec.further, *endpoint_words(endpoint)]


def _given(spec: LoadSpec) -> list[tuple[str, str]]:
    """Return options with a figure, as far as they are asked for."""
    figures = (
        ("-t", None if spec.transactions is None else str(spec.transactions)),
        ("-M", spec.protocol),
        ("-R", None if spec.rate_per_s is None else f"{spec.rate_per_s:.15g}"),
        ("-L", None if spec.latency_limit_ms is None else f"{spec.latency_limit_ms:.15g}"),
    )
    return [(flag, text) for flag, text in figures if text is not None]


def endpoint_words(endpoint: LoadEndpoint) -> list[str]:
    """Return -h and -p, of several hosts as lists of libpq, -U, and the database by position."""
    hosts, ports = zip((endpoint.host, endpoint.port), *endpoint.further, strict=True)
    arguments = ["-h", ",".join(hosts)] if any(hosts) else []
    return [*arguments, "-p", ",".join(map(str, ports)), "-U", endpoint.user, _database(endpoint)]


def _database(endpoint: LoadEndpoint) -> str:
    """Return a name that libpq takes for a name, or connection parameters.

    A name with '=' in it, like a URI, would be read as parameters.
    """
    if _PLAIN_NAME.fullmatch(endpoint.dbname) and not endpoint.keywords:
        return endpoint.dbname
    return " ".join(
        f"{name}={conninfo_value(value)}" for name, value in {"dbname": endpoint.dbname, **endpoint.keywords}.items()
    )


def shell_quoted(argv: Sequence[str]) -> str:
    """Return the command line as it can be pasted into a shell."""
    return shlex.join(argv)
