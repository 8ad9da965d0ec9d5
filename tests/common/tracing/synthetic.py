"""An answer of two tokens on two sides, with times that are easy to add up. Milliseconds."""

from __future__ import annotations

from proto.payloads.trace import Span

MS = 1_000_000
STARTED = 7_000 * MS  # of the device's clock
AHEAD = 90_000 * MS  # the cloud's clock
KNOWN = (0.03, 0.01, 0.04, 0.5, 0.9)


def at(kind: str, detail: str, position: int, start: int, end: int, epoch: int = 0, **more: object) -> Span:
    return Span(kind, detail, position, start * MS, end * MS, epoch, **more)  # type: ignore[arg-type]


def device(zero: int = STARTED // MS) -> list[Span]:
    """Aggregates: its draft of 0 is right, that of 1 waits for the cloud's, and is wrong; 2 is decoded twice."""
    spans = [
        at("send", "open", 0, 0, 0),
        at("retrieve", "", 0, 0, 10),
        at("prefill", "", 0, 10, 30),
        at("decode", "drafted", 0, 30, 60),
        at("receive", "draft", 0, 55, 55),
        at("aggregate", "both", 0, 60, 60, accepted=(True, True), estimates=KNOWN),
        at("send", "target", 0, 60, 60),
        at("decode", "drafted", 1, 60, 90),
        at("decode", "pre-empted", 2, 90, 101),
        at("receive", "draft", 1, 100, 100),
        at("aggregate", "both", 1, 100, 100, accepted=(False, True), estimates=KNOWN),
        at("roll back", "", 1, 100, 100),
        at("send", "target", 1, 100, 100),
        at("decode", "drafted", 2, 101, 131, 1),
        at("receive", "draft", 2, 110, 110),
        at("aggregate", "both", 2, 131, 132, accepted=(True, False), estimates=KNOWN),
    ]
    return [moved(span, zero) for span in spans]


def cloud(zero: int = (STARTED + AHEAD) // MS) -> list[Span]:
    """20 ms away in each direction."""
    spans = [
        at("receive", "open", 0, 20, 20),
        at("retrieve", "", 0, 20, 22),
        at("prefill", "", 0, 22, 25),
        at("decode", "drafted", 0, 25, 35),
        at("send", "draft", 0, 35, 35),
        at("decode", "drafted", 1, 35, 80),
        at("send", "draft", 1, 80, 80),
        at("receive", "target", 0, 80, 80),
        at("follow", "", 0, 80, 80, accepted=(None, True)),
        at("decode", "drafted", 2, 80, 90),
        at("send", "draft", 2, 90, 90),
        at("receive", "target", 1, 120, 120),
        at("follow", "", 1, 120, 120, accepted=(None, True)),
    ]
    return [moved(span, zero) for span in spans]


def moved(span: Span, zero: int) -> Span:
    shift = zero * MS
    return Span(
        span.kind,
        span.detail,
        span.position,
        span.start + shift,
        span.end + shift,
        span.epoch,
        span.count,
        span.accepted,
        span.estimates,
    )
