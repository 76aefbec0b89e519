"""Measurements: one run with its record, a series of runs, and the services that start them."""
