"""How long what costs the server rests after it was asked, so that it takes no more than a twentieth of the time."""

from __future__ import annotations

from typing import Final

_PART: Final = 20.0


class Resting:
    """Rests of one connection's questions, each by the cheaper of its last two answers.

    A stop of ours, of the server or of the network in the middle of one answer is no cost of the question: a rest of
    twenty times as long would leave the throughput unknown for minutes. The first answer is cold and pays nothing.
    """

    def __init__(self) -> None:
        self._cost_s: dict[str, float] = {}

    def due_s(self, question: str, began_s: float, ended_s: float, every_s: float) -> float:
        """When the question is due again: `every_s` after it began, or later where it is expensive."""
        cost_s = ended_s - began_s
        paid_s = min(cost_s, self._cost_s.get(question, 0.0))
        self._cost_s[question] = cost_s
        return began_s + max(every_s, paid_s * _PART)
