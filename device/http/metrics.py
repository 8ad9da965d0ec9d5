"""The HTTP interface's own metrics, and the response that carries all of the daemon's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import Counter
from starlette.responses import Response

from common.metrics import exposition
from common.metrics.exposition import Reading, Readings

_NO_ANSWER: Final = "none"  # in place of a status: the client had left


class HttpMetrics:
    """Responses by status, and the answers in line. For the server's event loop."""

    def __init__(self, waiting: Callable[[], int]) -> None:
        """`waiting` is the number of answers that wait for a place."""
        self._registry = exposition.make_registry()
        self._responses = Counter(
            "dragon_http_responses", "HTTP responses by status", ["status"], registry=self._registry
        )
        self._registry.register(
            Readings(
                lambda: [Reading("dragon_num_requests_waiting", "Answers that wait for a place", float(waiting()))]
            )
        )

    def answered(self, status: int | None) -> None:
        """Note a response; None where nobody was left to get one."""
        self._responses.labels(_NO_ANSWER if status is None else str(status)).inc()

    def response(self, engine: bytes) -> Response:
        """These and those of the `engine`, as Prometheus wants them."""
        return Response(engine + exposition.text(self._registry), headers={"content-type": exposition.CONTENT_TYPE})
