"""Libraries for the daemons of these tests, filled once."""

from __future__ import annotations

from tests.daemons.conftest import fresh_data, libraries

__all__ = ["fresh_data", "libraries"]
