"""Panes: pure functions from a session to lines."""
