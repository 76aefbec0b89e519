"""Metrics: pure functions over frames, declared as rows of a catalogue."""
