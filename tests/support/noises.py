"""Throughput that wanders: the eight kinds of noise that the judge was designed with, relative to a level of 1.

One value a second. A row of a sample is one run; `checkpoint` is 1 while one writes.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from scipy.signal import lfilter

Floats = NDArray[np.float64]


class Noise(Struct, frozen=True):
    """One kind.

    Attributes:
        sd, phi: Of a first-order autoregression.
        dip: Share lost for three seconds, about every thirty.
        every_s, cost, lasting: Checkpoints: period, share lost, part of the period.
        drift: Share in ten minutes, of random sign.
    """

    sd: float
    phi: float = 0.0
    dip: float = 0.0
    every_s: int = 0
    cost: float = 0.0
    lasting: float = 0.0
    drift: float = 0.0


NOISES: Final = {
    "W": Noise(0.03),
    "A6": Noise(0.04, 0.6),
    "A9": Noise(0.04, 0.9),
    "D": Noise(0.04, 0.6, dip=0.20),
    "C1": Noise(0.04, 0.6, every_s=180, cost=0.15, lasting=0.30),
    "C2": Noise(0.04, 0.6, every_s=300, cost=0.08, lasting=0.90),
    "T": Noise(0.04, 0.6, drift=0.05),
    "S": Noise(0.04, 0.6, dip=0.20, every_s=120, cost=0.08, lasting=0.40, drift=0.03),
}


class Sample(Struct, frozen=True):
    """Runs of one kind: (runs, seconds) each."""

    tps: Floats
    checkpoint: Floats


def sample(kind: str, runs: int, seconds: int, seed: int) -> Sample:
    """So many runs of so many seconds, phase and sign at random."""
    noise, draw = NOISES[kind], np.random.default_rng([seed, *kind.encode()])
    start = 200
    white = draw.standard_normal((runs, seconds + start)) * noise.sd * np.sqrt(1.0 - noise.phi**2)
    tps = 1.0 + lfilter([1.0], [1.0, -noise.phi], white, axis=1)[:, start:]
    at_s = np.arange(seconds)
    if noise.dip:
        begins = draw.random((runs, seconds + 2)) < 1.0 / 30.0
        tps -= noise.dip * (begins[:, 2:] | begins[:, 1:-1] | begins[:, :-2])
    checkpoint = np.zeros((runs, seconds))
    if noise.every_s:
        phase = draw.integers(noise.every_s, size=(runs, 1))
        checkpoint = ((at_s + phase) % noise.every_s < noise.lasting * noise.every_s).astype(float)
        tps -= noise.cost * checkpoint
    if noise.drift:
        tps += draw.choice((-1.0, 1.0), size=(runs, 1)) * noise.drift * (at_s - seconds / 2.0) / 600.0
    return Sample(np.maximum(tps, 0.0), checkpoint)


TRANSACTIONS: Final = 100
"""A second, of a load whose latencies are drawn one by one."""
LATENCIES: Final = ("steady", "stalls", "checkpoints", "two populations")


def latencies(kind: str, seconds: int, seed: int) -> Floats:
    """Milliseconds: (seconds, transactions). Log-normal around a level that wanders."""
    draw = np.random.default_rng([seed, *kind.encode()])
    level = np.exp(lfilter([1.0], [1.0, -0.9], draw.standard_normal(seconds) * 0.03))
    found = 8.0 * level[:, None] * np.exp(0.5 * draw.standard_normal((seconds, TRANSACTIONS)))
    if kind == "stalls":
        stalled = draw.random(seconds) < 1.0 / 30.0
        found[stalled] += 400.0 * draw.random((int(stalled.sum()), TRANSACTIONS))
    elif kind == "checkpoints":
        phase = int(draw.integers(180))
        writing = (np.arange(seconds) + phase) % 180 < 54
        found[writing] *= np.where(draw.random((int(writing.sum()), TRANSACTIONS)) < 0.05, 8.0, 1.2)
    elif kind == "two populations":
        found *= np.where(draw.random(found.shape) < 0.012, 20.0, 1.0)
    return found
