"""The verifier: hands its passages to the device, and judges what that proposes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial

from common.engine.sampling import Mixing
from common.methods.cloud_answer import fitting
from common.methods.contributions import contribution_messages
from common.methods.draft_verify.driver import RoundsDriver
from common.methods.draft_verify.method import Scheme
from common.methods.draft_verify.reading import Reading
from common.methods.failures import failure_message, unknown_session
from common.methods.fetch.outbox import DocumentOutbox
from common.methods.interface import CloudContext
from common.methods.spans import span_messages
from common.rounds.verifying import Verifying
from common.runtime.reading import PromptRows
from common.session.values import Commit
from common.tracing.recorder import Recorder
from proto.messages import Closed, Error, Message, Open, Ready, Sync
from proto.rounds import Propose


class VerifyingCloud:
    """Implements `CloudHalf`."""

    def __init__(self, request: Open, context: CloudContext, scheme: Scheme, reading: Reading) -> None:
        self._request = request
        self._context = context
        self._scheme = scheme
        self._reading = reading
        self._machine = Verifying(scheme.config, scheme.judge)
        estimates = context.estimates
        recorder = Recorder("cloud", lambda: estimates.estimates, "cloud", alone=True) if request.trace else None
        if recorder is not None:
            recorder.message("receive", request)
        engine = context.side.decoding
        self._driver = RoundsDriver(self._machine, engine, context.send, self._decided, self._ended, "cloud", recorder)
        self._passages = DocumentOutbox(request.session, context.send, context.queued)
        self._passages_lock = threading.Lock()
        self._titles: tuple[str, ...] = ()
        self._shares: list[tuple[float, ...]] = []  # [positions][documents], empty where this side saw no distribution
        self.began = self._heard = time.monotonic()

    # --- CloudHalf

    def begin(self) -> None:
        side, estimates = self._context.side, self._context.estimates
        decoded = partial(side.profiler.decoded, estimates)
        side.begin(
            self._driver, self._request, self._scheme.verifier, self._retrieved, decoded, estimates, self._retrieve
        )

    def receive(self, message: Message) -> None:
        if not isinstance(message, Propose | Sync):
            return
        self._heard = time.monotonic()
        if self._driver.recorder is not None:
            self._driver.recorder.message("receive", message)
        machine = self._machine
        if isinstance(message, Propose):
            self._context.estimates.meter.spare(self._heard)
            self._driver.apply(lambda: machine.proposed(message, self._heard))
        else:
            self._driver.apply(lambda: machine.synchronised(message))
            del self._shares[len(message.tokens) :]

    def tick(self, now: float, run_ahead: int) -> None:
        """Hand over what the link has room for of the passages."""
        with self._passages_lock:
            if not self._driver.over and self._passages.pump():
                self._heard = now

    def silent(self, now: float) -> float:
        return now - self._heard

    def given_up(self) -> Error:
        return unknown_session(self._request.session)

    def closing(self) -> Iterator[Message]:
        self._driver.end()
        session, machine = self._request.session, self._machine
        yield from span_messages(session, self._driver.recorder)
        shares = self._shares[: machine.position]
        yield from contribution_messages(session, len(self._titles), shares, [None] * len(shares))
        rejected = machine.judged - machine.accepted
        yield Closed(session, machine.judged, machine.accepted, rejected, self._driver.preempted, machine.stale, 0)

    def end(self) -> None:
        self._driver.end()

    # --- the prompt, on the retrieval thread

    def _retrieve(self, request: Open) -> PromptRows:
        """Look up what both sides read, and hand the drafter its passages."""
        side = self._context.side
        found = self._reading.find(side, request)
        self._context.reserve(self, side.target.kv_bytes(request, found.rows))
        with self._passages_lock:
            if not found.passages:
                self._passages.add_none()
            for index, each in enumerate(found.passages):
                self._passages.add(index, len(found.passages), each.title, each.similarity, each.text.encode())
            self._passages.pump()
        return found.rows

    def _retrieved(self, retrieved: PromptRows) -> None:
        self._titles = retrieved.titles
        ready = Ready(self._request.session, fitting(retrieved.titles), retrieved.tokens)
        if self._driver.recorder is not None:
            self._driver.recorder.message("send", ready)
        self._context.send(ready)

    # --- under the driver's lock

    def _decided(self, commit: Commit, mixing: Mixing | None) -> bool:
        shares = () if mixing is None else tuple(float(share) for share in mixing.contributions(commit.token))
        del self._shares[commit.position :]
        self._shares += [()] * (commit.position - len(self._shares))
        self._shares.append(shares)
        return True

    def _ended(self, failure: Exception | None) -> None:
        if failure is not None:
            self._context.send(failure_message(self._request.session, failure))
            self._context.over(self)
