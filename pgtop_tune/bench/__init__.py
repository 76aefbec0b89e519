"""pgbench: location, command line, profiles, data sets, runs, log and report."""
