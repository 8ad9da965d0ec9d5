"""The town of tests/cloud, for methods."""

from tests.cloud.conftest import fresh_data, libraries

__all__ = ["fresh_data", "libraries"]
