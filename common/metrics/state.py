"""Metrics of both daemons: build, models with passes and memory, link."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge

from common.engine.kv.line import count_waiting
from common.metrics.exposition import MetricValue
from common.process.version import VERSION
from common.transport.sending import Flow, LinkCounters

if TYPE_CHECKING:  # a gateway has neither, and runs without torch
    from common.daemon.model_runtime import ModelRuntime
    from common.daemon.side import SideRuntime


def note_build(registry: CollectorRegistry, side: SideRuntime) -> None:
    """Registers version and model of this daemon."""
    facts = {
        "version": VERSION,
        "role": side.role,
        "model": side.decoder.identity,
        "number_type": str(side.decoder.dtype).removeprefix("torch."),
        "weights": side.decoder.weights,
        "exactness": side.decoder.exactness,
    }
    build = Gauge("dragon_build_info", "1, of this program and its model", tuple(facts), registry=registry)
    build.labels(**facts).set(1)


def models_of(side: SideRuntime) -> dict[str, ModelRuntime]:
    """Each model once, by setting name."""
    named = {"model": side.target, "draft_model": side.drafter, "local_target": side.local_target}
    found: dict[str, ModelRuntime] = {}
    for name, model in named.items():
        if model is not None and model not in found.values():
            found[name] = model
    return found


def model_readings(models: Mapping[str, ModelRuntime]) -> Iterator[MetricValue]:
    """Passes and KV memory of each model.

    Takes a lock for microseconds, and none that a pass holds.
    """

    def each(value: Callable[[ModelRuntime], float]) -> tuple[tuple[str, float], ...]:
        return tuple((name, value(model)) for name, model in models.items())

    def done(name: str, meaning: str, value: Callable[[ModelRuntime], float]) -> MetricValue:
        return MetricValue(f"dragon_decode_{name}", meaning, each(value), "model", counts=True)

    yield MetricValue("dragon_kv_cache_usage_perc", "Part of kv_bytes that is taken, 0 to 1", each(_usage), "model")
    memories = {model.decoder.memory for model in models.values()}
    yield MetricValue("dragon_kv_cache_waiting", "Answers that wait for KV memory", float(count_waiting(memories)))
    yield done("passes", "Forward passes", lambda model: model.decoding.done.passes)
    yield done("rows", "Rows of all passes", lambda model: model.decoding.done.rows)
    yield done("tokens", "Tokens fed, once per row", lambda model: model.decoding.done.tokens)
    yield done("stale_tokens", "Tokens fed whose result was not used", lambda model: model.decoding.done.stale)
    yield done("passes_given_up", "Passes that became useless", lambda model: model.decoding.done.given_up)
    yield done("pass_seconds", "Seconds of all passes", lambda model: model.decoding.done.seconds)


def link_readings(counts: LinkCounters) -> Iterator[MetricValue]:
    """Traffic of the link by message, and refusals."""

    def count(name: str, meaning: str, value: float | tuple[tuple[str, float], ...]) -> MetricValue:
        label = "message" if isinstance(value, tuple) else None
        return MetricValue(f"dragon_link_{name}", meaning, value, label, counts=True)

    for way, flows in (("sent", counts.sent), ("received", counts.received)):
        yield count(f"{way}_messages", f"Messages {way}", _flows(flows, lambda flow: flow.messages))
        yield count(f"{way}_bytes", f"Bytes of messages {way}", _flows(flows, lambda flow: flow.bytes))
    yield count("malformed_messages", "Messages that the codec refused", counts.malformed)
    yield count("over_quota_messages", "Messages above a peer's rate", counts.over_quota)
    yield count("dropped_messages", "Messages not sent: the peer was gone, or too much waited for it", counts.dropped)
    yield count("stray_messages", "Messages of connections that were not accepted", counts.strays)
    yield count("connections", "Connections that were accepted", counts.connects)
    yield count("refused_handshakes", "Handshakes that failed", counts.refused)
    yield count(
        "cut_connections", "Connections closed for what they sent, or because there were too many", counts.disconnected
    )
    yield count(
        "faults", "Exceptions that the link survived; each is a fault in this program", counts.faults + counts.mishaps
    )


def _usage(model: ModelRuntime) -> float:
    memory = model.decoder.memory
    return memory.used_bytes / memory.limit_bytes if memory.limit_bytes else 0.0


def _flows(flows: Mapping[str, Flow], value: Callable[[Flow], int]) -> tuple[tuple[str, float], ...]:
    return tuple((kind, float(value(flow))) for kind, flow in sorted(flows.items()))
