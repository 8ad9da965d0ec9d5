"""The metrics of a cloud with workers: the gateway's own, and each worker's with its place as a label."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from cloud.gateway.fleet import Fleet
from cloud.gateway.gateway import Gateway
from common.metrics import exposition
from common.metrics.answers import BUSY
from common.metrics.exposition import Reading, Readings
from common.metrics.state import link_readings
from common.transport.counters import CountersSnapshot

PATIENCE: Final = 2.0  # seconds for the workers' answers; Prometheus waits 10 by default


class GatewayMetrics:
    """Reads what the gateway knows, and asks workers for theirs, whenever somebody asks for the metrics."""

    def __init__(self, gateway: Gateway, fleet: Fleet, link: Callable[[], CountersSnapshot]) -> None:
        """`link` counts what is exchanged with devices."""
        self._gateway = gateway
        self._fleet = fleet
        self._link = link
        self._registry = exposition.make_registry(process=True)
        self._registry.register(Readings(self._readings))

    def text(self) -> bytes:
        """All of them, in Prometheus' text format. A worker that does not answer in time is left out."""
        workers = {str(place): text for place, text in sorted(self._fleet.metrics(PATIENCE).items())}
        return exposition.merged(exposition.text(self._registry), workers, "worker")

    def _readings(self) -> Iterator[Reading]:
        gateway = self._gateway
        yield Reading("dragon_workers_serving", "Workers that serve", float(self._fleet.serving))
        ends = tuple((why, float(count)) for why, count in self._fleet.ends)
        yield Reading("dragon_worker_ends", "Ends of workers that were not told to end", ends, "why", counts=True)
        moved = "Sessions whose worker ended, which their devices open again"
        yield Reading("dragon_worker_sessions_lost", moved, float(gateway.sessions_lost), counts=True)
        yield Reading("dragon_peers_connected", "Devices that have shaken hands", float(gateway.devices))
        refused = ((BUSY, float(gateway.busy)),)
        yield Reading("dragon_request_failures", "Answers that were refused", refused, "kind", counts=True)
        yield from link_readings(self._link())
