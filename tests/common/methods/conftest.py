"""Libraries for the two sides of a method, in this process."""

from tests.daemons.conftest import fresh_data, libraries

__all__ = ["fresh_data", "libraries"]
