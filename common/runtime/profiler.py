"""The profiler thread: turns measurements into the estimates that the scheduler decides by (DRAGON §5.2)."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import torch

from common.model.decoder import Decoder
from common.model.profile import profile_decode
from common.runtime.notes import Decoded, Judged, Measurement, RemoteDecoded, RoundTripped
from common.scheduling.estimators import Acceptance, DecodeDelay, DecodeLine, RoundTripTime
from common.scheduling.policy import Estimates, run_ahead
from common.scheduling.profile_store import ProfileKey, ProfileStore
from common.speculation.values import Commit
from common.transport.probe import RoundTrips
from proto.messages import Probe, ProbeReply, Side

log = logging.getLogger(__name__)

PERIOD = 0.1  # seconds between two looks at what was measured
PROBE_PERIOD = 0.5  # seconds between two probes of the link
BACKLOG = 4096  # measurements that wait at most; older ones are worth less than a stall
TYPICAL_CONTEXT = 256.0  # tokens; where a line without a measured context is pinned


class Profiler:
    """Estimates of both sides' decode times, the round trip and the acceptance, kept up to date by a thread."""

    def __init__(self, role: Side, line: DecodeLine) -> None:
        self.role: Side = role
        self.line = line  # this side's, as profiled offline
        self.rtt: float | None = None  # seconds
        self.probe: Callable[[Probe], object] = lambda probe: None  # sends one over the link, set when there is one
        self._delays: dict[Side, DecodeDelay] = {"device": DecodeDelay(line), "cloud": DecodeDelay(line)}
        self._contexts: dict[Side, float] = {"device": TYPICAL_CONTEXT, "cloud": TYPICAL_CONTEXT}
        self._acceptance = Acceptance()
        self._round_trip = RoundTripTime()
        self._trips = RoundTrips()
        self._measured: deque[Measurement] = deque(maxlen=BACKLOG)
        self._snapshot = self._estimate()
        self._longest_trip: float | None = None  # a round trip that is seldom exceeded, seconds
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="profiler", daemon=True)
        self._thread.start()

    # --- measurements, from any thread

    def decoded(self, context: int, seconds: float) -> None:
        """One of this side's decode steps, at `context` tokens in its longest row."""
        self._measured.append(Decoded(context, seconds))

    def remote_decoded(self, seconds: float) -> None:
        """The other side says how long its step took."""
        self._measured.append(RemoteDecoded(seconds))

    def remote_line(self, slope: float, intercept: float) -> None:
        """The other side's offline profile."""
        other: Side = "cloud" if self.role == "device" else "device"
        self._delays[other] = DecodeDelay(DecodeLine.of(max(slope, 0.0), intercept, TYPICAL_CONTEXT))

    def judged(self, commit: Commit) -> None:
        """A position was aggregated from both sides' drafts."""
        self._measured.append(Judged(commit.expected, dict(commit.accepted)))

    def replied(self, reply: ProbeReply) -> None:
        """A probe came back."""
        trip = self._trips.reply(reply, _microseconds())
        if trip is not None:
            self._measured.append(RoundTripped(trip.rtt))

    def reconnected(self) -> None:
        """Another peer, another clock."""
        self._trips = RoundTrips()

    # --- estimates, for any thread

    def estimates(self) -> Estimates:
        """The latest snapshot."""
        return self._snapshot

    def run_ahead(self, maximum: int) -> int:
        """Drafts this side should hold beyond the committed prefix to be busy while a verdict is under way."""
        snapshot = self._snapshot
        seconds = snapshot.device_decode if self.role == "device" else snapshot.cloud_decode
        upper = self._longest_trip
        if upper is None or seconds <= 0.0:
            return maximum
        other = snapshot.cloud_decode if self.role == "device" else snapshot.device_decode
        # The verdict on a draft comes no sooner than the slower side's draft for the same position.
        return run_ahead(upper + other, seconds, maximum)

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    # --- the thread

    def _run(self) -> None:
        probed = 0.0
        while not self._closing.wait(PERIOD):
            now = time.monotonic()
            if now - probed >= PROBE_PERIOD:
                probed = now
                self.probe(self._trips.probe(_microseconds()))
            try:
                self._digest()
            except ValueError:
                log.exception("an impossible measurement was left out")

    def _digest(self) -> None:
        other: Side = "cloud" if self.role == "device" else "device"
        while self._measured:
            match self._measured.popleft():
                case Decoded(context, seconds):
                    self._contexts[self.role] = float(context)
                    self._delays[self.role].observe(float(context), seconds)
                case RemoteDecoded(seconds):
                    # Its context is not told; the two sides' rows are about equally long.
                    self._contexts[other] = self._contexts[self.role]
                    self._delays[other].observe(self._contexts[other], seconds)
                case Judged(expected, accepted):
                    alphas = dict(zip(("device", "cloud"), expected, strict=True)) if expected else accepted
                    for side, value in alphas.items():
                        self._acceptance.observe("device" if side == "device" else "cloud", float(value))
                case RoundTripped(seconds):
                    self._round_trip.observe(seconds)
        self.rtt, self._longest_trip = self._round_trip.estimate, self._round_trip.upper()
        self._snapshot = self._estimate()

    def _estimate(self) -> Estimates:
        return Estimates(
            self._delays["device"].predict(self._contexts["device"]),
            self._delays["cloud"].predict(self._contexts["cloud"]),
            self._round_trip.estimate or 0.0,
            self._acceptance.of("device"),
            self._acceptance.of("cloud"),
        )


def profiled_line(decoder: Decoder, rows: int, folder: Path) -> DecodeLine:
    """The decode line of `decoder` with `rows` documents: from `folder`, or measured now and kept there (§5.2)."""
    store = ProfileStore(folder)
    key = ProfileKey(decoder.identity, f"{decoder.torch_device}/{decoder.dtype}/{torch.get_num_threads()}", rows)
    line = store.load(key)
    if line is None:
        longest = min(decoder.max_context - 1, 512)
        profile = profile_decode(decoder, rows, sorted({longest // 8, longest // 2, longest}))
        line = DecodeLine.fit(profile.contexts, profile.seconds)
        try:
            store.save(key, line)
        except OSError as error:
            log.warning("the decode profile can't be kept: %s", error.strerror)
    return line


def _microseconds() -> int:
    return time.monotonic_ns() // 1000
