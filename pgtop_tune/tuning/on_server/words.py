"""A search in words: lines while it runs, the result, and the script that makes it permanent. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import counted, duration
from pgtop_tune.experiment.prediction import score_words
from pgtop_tune.tuning.ablation import Examined, Fate
from pgtop_tune.tuning.confirming import Confirmed
from pgtop_tune.tuning.on_server.evaluating import WAIT
from pgtop_tune.tuning.on_server.journal import COMPLETE, KeptTuning
from pgtop_tune.tuning.on_server.objective import FIGURES
from pgtop_tune.tuning.protocol import Progress
from pgtop_tune.tuning.result import Ending, Result
from pgtop_tune.tuning.search import Evaluation, Outcome, Phase

_REASON: Final = 160
_LEAST_WAIT_MS: Final = 0.01
SAME_MIX_WORDS: Final = "time of the same mix of statements"


def percent(log_ratio: float) -> str:
    """ "+4.1 %" of a log ratio."""
    return f"{100.0 * math.expm1(log_ratio):+.1f} %"


def changes_words(values: Mapping[str, str], before: Mapping[str, str]) -> str:
    """ "max_wal_size 1GB→4GB, random_page_cost 4→1.1"; "nothing changed"."""
    changed = [f"{name} {before[name]}→{value}" for name, value in values.items() if before.get(name) != value]
    return ", ".join(changed) or "nothing changed"


def evaluation_line(wanted: Evaluation) -> str:
    """Before an evaluation: "17. screen, row 3 of 12: work_mem 4MB→1MB"."""
    # A reason that names its phase, or says the change itself, is not said twice.
    reason = wanted.why.removeprefix(f"{wanted.phase}, ")
    words = [f"{wanted.phase}{'' if wanted.phase is Phase.SEARCH else f', {reason}'}"]
    if wanted.candidate != wanted.against:
        words.append(changes_words(wanted.values, wanted.against_values))
    return one_line(f"{wanted.number}. {': '.join(words)}", 300)


def outcome_line(wanted: Evaluation, outcome: Outcome) -> str:
    """After it."""
    took = "" if outcome.took is None else f", {duration(outcome.took)}"
    if outcome.effect is None:
        return one_line(f"   {wanted.number}: refused: {outcome.stopped}{took}", 300)
    spread = "" if outcome.error is None else f" ± {100.0 * outcome.error:.1f} points"
    return f"   {wanted.number}: {percent(outcome.effect)}{spread}{took}"


def progress_line(progress: Progress) -> str:
    """How far the search is; costs are seconds."""
    best = ", ".join(f"{name}={value}" for name, value in progress.values.items()) or "the start"
    left = max(progress.budget - progress.spent, 0.0)
    return f"{counted(progress.evaluations, 'evaluation')}, {duration(left)} left at most; best so far: {best}"


def result_lines(found: Result, objective: str) -> Iterator[str]:
    """The result as text: what it is first, then what it stands on."""
    yield f"{found.ending}: {found.why}"
    if found.confirmed is not None:
        yield f"{objective}: {interval_words(found.confirmed)}"
    for name, value in found.values.items():
        yield f"  {name} = {value}  (was {found.start[name]})"
    if found.ending is Ending.REFUSED and found.needed is not None:
        enough = "would do" if found.tried else "at least; how evaluations differ is not known yet"
        yield f"  --budget {_minutes(found.needed)} {enough}"
    # Of a winner that was not confirmed no knob has earned anything.
    for each in found.examined if found.values else ():
        yield f"  {examined_words(each)}"
    if found.confirmed is not None:
        yield from (f"  {line}" for line in figure_lines(found.confirmed))
    if found.changes:
        made_again = counted(len(found.changes), "evaluation")
        yield f"  {made_again} made again, because the conditions changed; at last {found.changes[-1]}"
    for name in found.let_go:
        yield f"  {name}: someone else changed it; the search let go of it"
    for name, why in found.left_out:
        yield f"  {name}: not searched: {why}"
    score = score_words(found.predictions)
    known = any(each.outcome.effect is not None for each in found.tried)
    spread = f"; one evaluation deviates by {100.0 * found.evaluation_sd:.1f} %" if known else ""
    yield f"{counted(len(found.tried), 'evaluation')} in {duration(found.spent)}{spread}{f'; {score}' if score else ''}"


def next_line(identity: str, found: Result) -> str:
    """What can be done with a result."""
    applied = ", `--apply` makes it permanent" if found.values else ""
    return f"`pgtop-tune tune --show {identity} -o tune.html` writes the report{applied}"


def _minutes(seconds: float) -> str:
    minutes = math.ceil(seconds / 60.0)
    return f"{minutes}m" if minutes < 120 else f"{math.ceil(minutes / 60.0)}h"


def interval_words(found: Confirmed) -> str:
    """ "+12.0 % (+8.1 % … +16.0 %), 8 fresh evaluations"."""
    low, high = percent(found.low), percent(found.high)
    return f"{percent(found.effect)} ({low} … {high}), {counted(found.evaluations, 'fresh evaluation')}"


def examined_words(found: Examined) -> str:
    """Which knobs earned it, which went back."""
    words = f"{' and '.join(found.knobs)}: {found.fate}"
    if found.effect is not None and found.low is not None and found.high is not None:
        words += f", {percent(found.effect)} ({percent(found.low)} … {percent(found.high)})"
    return f"{words}; {found.why}" if found.why and found.fate is not Fate.EARNED else words


def figure_lines(found: Confirmed) -> Iterator[str]:
    """Figures and waits of the confirmation, before and after."""
    for figure in FIGURES:
        before, after = found.start_figures.get(figure.name), found.figures.get(figure.name)
        if before is not None and after is not None and (before or after):
            yield f"{figure.title}: {before:.4g} → {after:.4g} {figure.unit}"
    for name, before_ms, after_ms in waits_of(found):
        yield f"{name}: {before_ms:.3f} → {after_ms:.3f} ms of each transaction"


def waits_of(found: Confirmed) -> list[tuple[str, float, float]]:
    """Classes of waits with their milliseconds of a transaction before and after, largest change first."""
    names = [name for name in found.figures if name.startswith(WAIT) and name in found.start_figures]
    rows = [(name.removeprefix(WAIT), found.start_figures[name], found.figures[name]) for name in names]
    kept = [row for row in rows if max(row[1:]) >= _LEAST_WAIT_MS]
    return sorted(kept, key=lambda row: -abs(row[2] - row[1]))


def status_lines(kept: KeptTuning, progress: Progress | None, result: Result | None, *, runs: bool) -> Iterator[str]:
    """How far a search of a journal is."""
    load = f"{kept.request.profile} -c {kept.request.clients}" if kept.request.profile else "the load of the server"
    yield f"{kept.id}: {kept.request.objective or SAME_MIX_WORDS} of {load}"
    if result is not None:
        yield f"{result.ending}: {result.why}{' Applied.' if kept.applied else ''}"
        return
    if progress is not None:
        yield progress_line(progress)
    if runs:
        yield "runs"
    elif kept.ended != COMPLETE:
        why = one_line(kept.ended, _REASON) or "killed"
        yield f"{why}: `pgtop-tune tune --resume {kept.id}` continues"


def script(statements: Sequence[str], commands: Sequence[str], confirmed: str) -> list[str]:
    """For psql; what it is, and the commands for the machine's half, as comments."""
    lines = [f"-- {line}" for line in ("Found and confirmed by pgtop-tune tune.", confirmed)]
    if commands:
        lines += ["-- In a shell of the server's machine:", *(f"--   {command}" for command in commands)]
    if statements:
        lines += [*(f"{statement};" for statement in statements), "SELECT pg_reload_conf();"]
    return lines
