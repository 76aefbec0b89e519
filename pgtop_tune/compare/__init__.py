"""Comparison of runs, recordings and windows: effects, their uncertainty, verdicts, reports, baselines."""
