"""The checks, one module per group."""
