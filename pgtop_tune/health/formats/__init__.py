"""The report of a check, in formats for people and for pipelines."""
