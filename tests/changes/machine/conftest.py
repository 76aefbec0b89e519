"""A machine made up in a directory of the test."""

from tests.host.conftest import made

__all__ = ["made"]
