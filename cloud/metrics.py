"""The cloud's metrics: sessions of all devices together, none by device."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from cloud.settings import CloudSettings
from common.answer.failures import NO_DOCUMENT_FITS, STOPPING
from common.answer.report import SideReport
from common.daemon.side import SideRuntime
from common.methods.catalog import METHODS, opened_by
from common.metrics import exposition
from common.metrics.answers import BUSY, OTHER, AnswerMetrics
from common.metrics.exposition import Reading, Readings
from common.metrics.state import link_readings, model_readings, models_of, note_build
from common.transport.counters import CountersSnapshot
from proto.messages import Busy, Closed, Draft, Error, Fetch, Generated, Message, Open, Ready, Target
from proto.rounds import Decided, Verdict

FIRST = Draft | Target | Verdict | Decided | Generated  # messages that bring a device's answer forward
REASONS: Final = ("closed", "cancelled", "gone")  # of the end of a session
# Codes of `Error`, all of this side's own. Another one would be told as `OTHER`.
KINDS: Final = (
    BUSY,
    "document",
    "failed",
    "malformed",
    "mismatch",
    "no-handshake",
    NO_DOCUMENT_FITS,
    "too-large",
    "unknown-message",
    "unknown-session",
    "unservable",
    "version",
    OTHER,
)


class CloudMetrics:
    """Notes each session once, at its end, and what devices are refused; reads the rest when asked. From any thread."""

    def __init__(self, side: SideRuntime, sessions: Callable[[], int], peers: Callable[[], int], process: bool) -> None:
        """`sessions` and `peers` are the numbers of those there are now; `process`: it is this daemon's alone."""
        self.link: Callable[[], CountersSnapshot] | None = None  # counts of the link, once there is one
        self._registry = registry = exposition.make_registry(process)
        self._side = side
        self._sessions = sessions
        self._peers = peers
        note_build(registry, side)
        self.answers = AnswerMetrics(
            registry, "From Open to the first draft, verdict or token", METHODS, REASONS, KINDS, ("cloud",)
        )
        registry.register(Readings(self._readings))

    def text(self) -> bytes:
        """All of them, in Prometheus' text format."""
        return exposition.text(self._registry)

    def sent(self, message: Message) -> None:
        """Note a refusal or a failure that a device is told."""
        if isinstance(message, Busy):
            self.answers.failed(BUSY)
        elif isinstance(message, Error) and message.code != STOPPING:
            self.answers.failed(message.code)

    def _readings(self) -> Iterator[Reading]:
        yield Reading("dragon_num_requests_running", "Sessions that are open", float(self._sessions()))
        yield from model_readings(models_of(self._side))
        if self.link is not None:  # else it is the gateway's
            yield Reading("dragon_peers_connected", "Devices that have shaken hands", float(self._peers()))
            yield from link_readings(self.link())


class SessionNotes:
    """Figures of one session, noted while it is open."""

    def __init__(self, metrics: CloudMetrics, request: Open | Fetch, settings: CloudSettings) -> None:
        self._answers = metrics.answers
        self._method = opened_by(request).name
        self._placement = request.placement if isinstance(request, Open) else "device"
        self._most_tokens = request.max_tokens if isinstance(request, Open) else settings.max_tokens
        self._began = time.monotonic()
        self._first = True
        self._failed = False

    def waited(self, seconds: float) -> None:
        """Note a wait for KV memory."""
        self._answers.waited(seconds)

    def sent(self, message: Message) -> None:
        """Look at a message of the session on its way out; nearly all are of no interest."""
        if self._first and isinstance(message, FIRST):
            self._first = False
            self._answers.begun(time.monotonic() - self._began)
        elif isinstance(message, Ready):
            self._answers.read(message.prompt_tokens)
        elif isinstance(message, Closed):
            told = message
            report = SideReport(told.drafted, told.accepted, told.rollbacks, branches=told.branches, used=told.used)
            self._answers.drafts("cloud", report)
        elif isinstance(message, Error | Busy):
            self._failed = True

    def closed(self, tokens: int) -> None:
        """Note the tokens that the device says its answer has."""
        self._answers.generated(min(tokens, self._most_tokens))

    def ended(self, reason: str | None) -> None:
        """Note the end of the session, None where its device was told of a failure."""
        if reason is not None and not self._failed:
            self._answers.ended(reason, time.monotonic() - self._began, self._method, self._placement)
