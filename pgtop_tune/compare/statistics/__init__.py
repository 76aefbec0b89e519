"""The statistics of a verdict: blocks, effects with intervals, change points."""
