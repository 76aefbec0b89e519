"""Numbered frames with random access: the part that a file and the history buffer share."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from typing import Protocol

from pgtop_tune.model.frame import Frame


class Score(Enum):
    """What frames are searched for."""

    EVENT = auto()
    CHECKPOINT = auto()
    SLOWEST = auto()


class Frames(Protocol):
    """Frames from `first` up to and without `frame_count`."""

    @property
    def first(self) -> int:
        """Number of the oldest frame there is."""
        ...

    @property
    def frame_count(self) -> int:
        """Number after the newest."""
        ...

    @property
    def length_s(self) -> float:
        """Elapsed seconds of the newest frame; 0 without one."""
        ...

    @property
    def growing(self) -> bool:
        """Whether more may come."""
        ...

    def elapsed_s(self, index: int) -> float:
        """Moment of a frame."""
        ...

    def index_at(self, elapsed_s: float) -> int:
        """The last frame at or before a moment; the first when there is none."""
        ...

    def frames(self, first: int = 0) -> Iterator[tuple[int, Frame]]:
        """Frames from a number on, each with its number."""
        ...

    def scores(self, score: Score, first: int = 0) -> Iterator[tuple[int, float]]:
        """How much of a landmark each of them is, without making frames of them."""
        ...

    def block_begin(self, index: int) -> int:
        """Number of the key frame at or before a frame."""
        ...

    def extend(self) -> bool:
        """Looks whether more has been written; whether it has."""
        ...

    def close(self) -> None:
        """Nobody will look again."""
        ...
