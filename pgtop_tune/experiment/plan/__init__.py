"""Experiments from a plan: the file, its cells in order, what they cost, and running them."""
