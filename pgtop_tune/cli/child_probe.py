"""Run in a child before one is relied on: imports what a revert needs, and says where this program is imported from."""

from __future__ import annotations

import os

import pgtop_tune
import pgtop_tune.cli.commands.parameters


def main() -> None:
    """Write the path of the package."""
    os.write(1, os.fsencode(pgtop_tune.__file__))


if __name__ == "__main__":
    main()
