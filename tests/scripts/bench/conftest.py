"""Daemons and commands of the benchmarks, started in the quick way."""

from __future__ import annotations

from tests.daemons.conftest import starts

__all__ = ["starts"]
