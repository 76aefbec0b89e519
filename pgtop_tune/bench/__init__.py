"""pgbench: finding it, its command line, its words, its life."""
