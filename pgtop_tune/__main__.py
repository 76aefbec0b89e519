"""`python -m pgtop_tune`."""

from pgtop_tune.cli.app import main

main()
