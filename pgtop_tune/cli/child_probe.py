"""A probe that runs in a child: imports the code of a revert, and prints the path of this package."""

from __future__ import annotations

import os

import pgtop_tune
import pgtop_tune.cli.commands.parameters


def main() -> None:
    """Write the path of the package."""
    os.write(1, os.fsencode(pgtop_tune.__file__))


if __name__ == "__main__":
    main()
