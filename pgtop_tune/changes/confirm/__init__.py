"""Commit-confirm: deadlines, trip wires, and sets whose program is gone."""
