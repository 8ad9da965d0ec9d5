"""Libraries for the two sides of a method, in this process; towns in which a test leaves nothing."""

from tests.cloud.conftest import towns_as_before
from tests.daemons.conftest import fresh_data, libraries

__all__ = ["fresh_data", "libraries", "towns_as_before"]
