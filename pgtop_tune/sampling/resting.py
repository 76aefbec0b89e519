"""Rests of questions that cost the server: most take at most a twentieth of the time, those of many rows less."""

from __future__ import annotations

from collections import deque
from typing import Final

_PART: Final = 20.0
_PART_BY_ROWS: Final = 300.0
"""A question of many rows takes a third of a per cent of a core: with the texts of its rows at most half a one."""
_ANSWERS: Final = 10


class Resting:
    """Rests of one connection's questions, each by the cheaper of its last two answers.

    A stop of ours, of the server or of the network in the middle of one answer is no cost of the question: a rest of
    twenty times as long would leave the throughput unknown for minutes. The first answer is cold and pays nothing.

    A question of many rows rests by their number and the least time that a row took in its last answers: a busy machine
    makes answers late and not dear, and rows that came at once are paid for at once.
    """

    def __init__(self) -> None:
        self._cost_s: dict[str, float] = {}
        self._row_s: dict[str, deque[float]] = {}

    def due_s(self, question: str, began_s: float, ended_s: float, every_s: float, rows: int | None = None) -> float:
        """Return when the question is due again: `every_s` after it began, or later where it is expensive.

        Args:
            question: Name of the question.
            began_s, ended_s: When it was asked, and answered.
            every_s: Least time between two.
            rows: Of the answer, of a question that rests by them.
        """
        cost_s = ended_s - began_s
        paid_s, self._cost_s[question] = min(cost_s, self._cost_s.get(question, 0.0)), cost_s
        if rows is None:
            return began_s + max(every_s, paid_s * _PART)
        row_s = self._row_s.setdefault(question, deque(maxlen=_ANSWERS))
        paid_s = min((*row_s, cost_s / max(rows, 1))) * rows if row_s else 0.0
        row_s.append(cost_s / max(rows, 1))
        return began_s + max(every_s, paid_s * _PART_BY_ROWS)
