"""The profiler thread: turns measurements into the estimates that the scheduler decides by (DRAGON §5.2)."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import replace
from pathlib import Path

import torch

from common.model.decoder import Decoder
from common.model.profile import profile_decode
from common.runtime.link_meter import LinkMeter
from common.runtime.notes import Decoded, Judged, Measurement, RemoteDecoded
from common.scheduling.estimators import Acceptance, DecodeDelay, DecodeLine
from common.scheduling.policy import Estimates, run_ahead
from common.scheduling.profile_store import ProfileKey, ProfileStore
from common.speculation.values import Commit
from proto.messages import Side

log = logging.getLogger(__name__)

PERIOD = 0.1  # seconds between two looks at what was measured
BACKLOG = 4096  # measurements that wait at most; older ones are worth less than a stall
TYPICAL_CONTEXT = 256.0  # tokens; where a line without a measured context is pinned


class Profiler:
    """Estimates of both sides' decode times and of the acceptance, kept up to date by a thread that probes the links,
    too.
    """

    def __init__(self, role: Side, line: DecodeLine) -> None:
        self.role: Side = role
        self.line = line  # this side's, as profiled offline
        self._delays: dict[Side, DecodeDelay] = {"device": DecodeDelay(line), "cloud": DecodeDelay(line)}
        self._contexts: dict[Side, float] = {"device": TYPICAL_CONTEXT, "cloud": TYPICAL_CONTEXT}
        self._acceptance = Acceptance()
        self._meters: set[LinkMeter] = set()
        self._measured: deque[Measurement] = deque(maxlen=BACKLOG)
        self._snapshot = self._estimate()
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

    def watch(self, meter: LinkMeter) -> None:
        """Probe this connection from now on."""
        self._meters = self._meters | {meter}

    def forget(self, meter: LinkMeter) -> None:
        """The connection is gone."""
        self._meters = self._meters - {meter}

    # --- estimates, for any thread

    def estimates(self, meter: LinkMeter | None) -> Estimates:
        """The latest snapshot, for an answer over the connection of `meter`."""
        rtt = None if meter is None else meter.rtt
        return self._snapshot if rtt is None else replace(self._snapshot, rtt=rtt)

    def run_ahead(self, meter: LinkMeter | None, maximum: int) -> int:
        """Drafts this side should hold beyond the committed prefix to be busy while a verdict is under way."""
        snapshot = self._snapshot
        longest = None if meter is None else meter.longest
        own, other = snapshot.device_decode, snapshot.cloud_decode
        if self.role == "cloud":
            own, other = other, own
        if longest is None or own <= 0.0:
            return maximum
        # The verdict on a draft comes no sooner than the slower side's draft for the same position.
        return run_ahead(longest + other, own, maximum)

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    # --- the thread

    def _run(self) -> None:
        while not self._closing.wait(PERIOD):
            now = time.monotonic()
            for meter in self._meters:
                meter.probe(now)
            try:
                self._digest()
            except ValueError:
                log.warning("an impossible measurement was left out")

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
        self._snapshot = self._estimate()

    def _estimate(self) -> Estimates:
        return Estimates(
            self._delays["device"].predict(self._contexts["device"]),
            self._delays["cloud"].predict(self._contexts["cloud"]),
            0.0,  # each connection has its own
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
