"""Measurements: one run with its record, a series of runs, and what they say."""
