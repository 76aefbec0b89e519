"""What others change of the server's parameters while a pair of blocks is measured, from looks at pg_settings.

The sampler looks again as soon as the server has read its files anew, so that a value which comes and goes within a
block is seen as well, and so is a parameter that is not under test.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Set
from itertools import pairwise
from typing import Final

from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import ParameterSample
from pgtop_tune.sampling.happenings import parameter_events

_KEPT: Final = 32
"""Looks; a pair has a handful."""


class ParametersSeen:
    """The newest looks."""

    def __init__(self) -> None:
        self._looks: Final = deque[ParameterSample](maxlen=_KEPT)

    def take(self, frame: Frame) -> None:
        """A frame with a new look, or with an earlier one."""
        sample = sections.parameters(frame)
        if not isinstance(sample, Unavailable) and (not self._looks or sample is not self._looks[-1]):
            self._looks.append(sample)

    def changed(self, pair_since_s: float, block_since_s: float, switched: Set[str]) -> str:
        """What others changed since the pair began, in words; "" for nothing.

        Args:
            pair_since_s: When the pair began, on the session's clock.
            block_since_s: When the block did.
            switched: Parameters under test: between blocks the experiment changes them itself.
        """
        for before, now in pairwise(self._looks):
            if now.at_s <= pair_since_s:
                continue
            ours = frozenset(switched) if before.at_s <= block_since_s else frozenset[str]()
            if found := parameter_events(before, now, 0, ours):
                return f"{found[0].text}, changed by someone else"
        return ""
