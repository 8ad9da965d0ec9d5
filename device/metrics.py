"""The device's metrics: its answers and its view of the cloud."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import get_args

from prometheus_client import Counter, Histogram, generate_latest

from common.answer.report import Record, Report
from common.daemon.side import SideRuntime
from common.methods.catalog import METHODS
from common.metrics import exposition
from common.metrics.answers import BETWEEN_TOKENS, FAILURES, AnswerMetrics, failure_kind
from common.metrics.exposition import MetricValue, ValueCollector
from common.metrics.state import link_readings, model_readings, models_of, note_build
from common.transport.sending import LinkCounters
from device.cloud_connection import CloudView
from device.interface import Finished, FinishReason


class DeviceMetrics:
    """Records answers at their end; reads the rest on request. Thread-safe."""

    def __init__(
        self,
        side: SideRuntime,
        cloud: CloudView,
        running: Callable[[], int],
        link: Callable[[], LinkCounters | None],
        process: bool = False,
    ) -> None:
        """`running` returns the number of answers, `link` the link's counts or None.

        `process`: this daemon owns the process.
        """
        self._registry = registry = exposition.make_registry(process)
        self._side = side
        self._cloud = cloud
        self._running = running
        self._link = link
        note_build(registry, side)
        self._answers = AnswerMetrics(
            registry, "From a request that has its slot to the first token", METHODS, get_args(FinishReason), FAILURES
        )
        self._between = Histogram(
            "dragon_inter_token_latency_seconds",
            "Between two tokens of an answer",
            buckets=BETWEEN_TOKENS,
            registry=registry,
        )
        self._uncertain = self._counter("certificate_failures", "Positions at which values had to be asked for")
        self._disagreements = self._counter("disagreements", "Positions that the two sides decided differently")
        self._degraded = self._counter("degraded_tokens", "Tokens that this device decided alone, its cloud away")
        self._switches = self._counter("placement_switches", "Changes of the side that aggregates")
        self._sent = self._counter("answer_sent_bytes", "Bytes to the cloud that decide tokens")
        self._received = self._counter("answer_received_bytes", "Bytes from the cloud that decide tokens")
        self._fetched = self._counter("answer_fetched_bytes", "Bytes of the cloud's documents")
        registry.register(ValueCollector(self._readings))

    def text(self) -> bytes:
        """Returns the metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def refused(self, failure: Exception) -> None:
        self._answers.failed(failure_kind(failure))

    def ended(self, record: Record, event: Finished | Exception) -> None:
        answers, times = self._answers, record.token_times
        answers.waited(record.memory_wait)
        if times:
            answers.begun(times[0] - record.started)
        for earlier, later in pairwise(times):
            self._between.observe(later - earlier)
        if isinstance(event, Exception):
            answers.generated(len(times))
            answers.failed(failure_kind(event))
        else:
            self._reported(event.reason, event.report)

    def _reported(self, reason: FinishReason, report: Report) -> None:
        answers = self._answers
        answers.ended(reason, report.seconds, report.method, report.placement)
        answers.read(report.prompt_tokens)
        answers.generated(report.tokens)
        answers.drafts("device", report.device)
        answers.drafts("cloud", report.cloud)
        self._uncertain.inc(report.certificate_failures)
        self._disagreements.inc(report.disagreements)
        self._degraded.inc(len(report.degraded))
        self._switches.inc(report.switches)
        self._sent.inc(report.sent.exchange)
        self._received.inc(report.received_bytes)
        self._fetched.inc(report.fetched_bytes)

    def _counter(self, name: str, meaning: str) -> Counter:
        return Counter(f"dragon_{name}", meaning, registry=self._registry)

    def _readings(self) -> Iterator[MetricValue]:
        yield MetricValue("dragon_num_requests_running", "Answers under way", float(self._running()))
        yield MetricValue(
            "dragon_cloud_connected", "1 while the cloud takes part, else 0", float(self._cloud.connected)
        )
        trip = self._cloud.peer.meter.rtt if self._cloud.connected else None
        if trip is not None:
            yield MetricValue("dragon_round_trip_seconds", "Expected round trip to the cloud", trip)
        yield from model_readings(models_of(self._side))
        counts = self._link()
        if counts is not None:
            yield from link_readings(counts)
