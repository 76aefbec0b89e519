"""Data sets of loads: pgbench's own tables and the bus company's, with their size, recognition and creation."""
