"""Baselines: runs saved under a name, and their changes over time."""
