"""A pair of daemons that answers at once, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class FakePair:
    """Everything that was asked, in order: the question, and the fields of the request."""

    report: Mapping[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    def complete(self, question: str, **fields: Any) -> dict[str, Any]:
        self.asked.append((question, fields))
        report = {"degraded": [], "notes": [], "pieces": []} | dict(self.report)
        return {"choices": [{"message": {"content": ""}}], "dragon": report}

    @contextmanager
    def running(self, *arguments: Any, **settings: Any) -> Iterator[FakePair]:
        """Takes the place of what starts daemons."""
        yield self
