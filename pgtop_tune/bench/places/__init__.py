"""Where pgbench runs: beside us, or on another machine through ssh."""
