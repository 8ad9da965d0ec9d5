"""Metrics of the HTTP interface, and log summaries of requests without a key."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter as Counts
from collections.abc import Callable, Mapping
from typing import Final

from prometheus_client import Counter, generate_latest
from starlette.responses import Response

from common.metrics import exposition
from common.metrics.exposition import MetricValue, ValueCollector

_NO_ANSWER: Final = "none"  # the client had left
PERIOD: Final = 60.0  # seconds between summaries
_MOST_KINDS: Final = 8  # per summary

Kind = tuple[str, int | None]  # known path and status


class HttpMetrics:
    """Metrics of the interface. For the server's event loop."""

    def __init__(self, waiting: Callable[[], int]) -> None:
        """`waiting` counts answers without a slot."""
        self._registry = exposition.make_registry()
        self._responses = Counter(
            "dragon_http_responses", "HTTP responses by status", ["status"], registry=self._registry
        )
        self._registry.register(
            ValueCollector(
                lambda: [MetricValue("dragon_num_requests_waiting", "Answers that wait for a slot", float(waiting()))]
            )
        )

    def answered(self, status: int | None) -> None:
        """Counts a response; `status` is None if the client had left."""
        self._responses.labels(_NO_ANSWER if status is None else str(status)).inc()

    def response(self, engine: bytes) -> Response:
        """Returns these metrics and the `engine`'s."""
        return Response(engine + generate_latest(self._registry), headers={"content-type": exposition.CONTENT_TYPE})


class RequestTally:
    """Counts requests; logs a summary at most once a minute.

    For the server's event loop.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._counts = Counts[Kind]()

    def count(self, path: str, status: int | None) -> None:
        """Counts a request; `path` is a known one, never the client's text."""
        if not self._counts:
            asyncio.get_running_loop().call_later(PERIOD, self.tell)
        self._counts[path, status] += 1

    def tell(self) -> None:
        if self._counts:
            self._log.info("requests without a key: %s", summarise_counts(self._counts))
            self._counts.clear()


def summarise_counts(counts: Mapping[Kind, int]) -> str:
    """Returns bounded text, the largest counts first."""
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    texts = [f"{number} x {path} {status}" for (path, status), number in ordered[:_MOST_KINDS]]
    if rest := sum(number for _, number in ordered[_MOST_KINDS:]):
        texts.append(f"{rest} others")
    return ", ".join(texts)
