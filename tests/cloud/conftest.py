"""Libraries for a cloud and its devices in this process."""

from tests.daemons.conftest import fresh_data, libraries

__all__ = ["fresh_data", "libraries"]
