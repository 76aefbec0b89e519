"""The parameters worth tuning, one row each: purpose, steps, cost."""
