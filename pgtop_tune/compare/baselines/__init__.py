"""Runs kept under a name, and how they change over the months."""
