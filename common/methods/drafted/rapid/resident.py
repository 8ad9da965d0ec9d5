"""Rapid on one device: the two halves of the network, with their messages handed over between the models' threads.

Messages are tasks of the receiver's engine thread, as neither half may be called under the other's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from common.answer.phase import Phase
from common.answer.record import AnswerRecord
from common.answer.recorder import Recorder
from common.answer.report import MethodReport, Record
from common.answer.request import Request
from common.answer.values import Commit
from common.answer.watch import Patience
from common.daemon.failures import as_failure
from common.daemon.model_runtime import claimed
from common.daemon.prompt_rows import PromptRows
from common.daemon.scope import Scope
from common.daemon.side import SideRuntime
from common.engine.kv.claims import Claim
from common.engine.sequences import Prompt
from common.estimates.peer_estimates import PeerEstimates
from common.methods.drafted.cloud_half import VerifyingCloud
from common.methods.drafted.method import Scheme
from common.methods.drafted.rapid.device_half import RapidDevice
from common.methods.drafted.reading import Found, Passage, Reading
from common.methods.interface import CloudContext, CloudHalf, DeviceContext
from proto.fields import Side
from proto.messages import Closed, Hello, Message, Open, Ready, Sync
from proto.rounds import Propose

NEVER = float("inf")


class Beside:
    """Implements `Cloud` for a verifier in the same process: it is there, and is waited for however long it takes."""

    connected = True
    absence = ""
    hello: Hello | None = None

    def __init__(self, side: SideRuntime) -> None:
        self._side = side

    @property
    def peer(self) -> PeerEstimates:
        return self._side.profiler.nobody

    def observe_acceptance(self, commit: Commit) -> None:
        """Nothing is placed by it here."""

    def decoded(self, context: int, seconds: float) -> None:
        """Nothing is placed by it here."""

    def waited(self, seconds: float) -> None:
        """Nobody's patience depends on it here."""

    def limits(self, read: bool, prompt_tokens: int = 0, tokens: int = 0, step: float | None = None) -> Patience:
        return Patience(NEVER, NEVER)


class Inside:
    """Implements `DeviceContext` for the drafter: as `outer`, but for what it says to a cloud."""

    def __init__(
        self, outer: DeviceContext, send: Callable[[Message], None], ended: Callable[[Exception | None], None]
    ) -> None:
        """`ended` is called before the end is told outside."""
        self.request: Request = outer.request
        self.opening: Open = outer.opening
        self.record: Record = outer.record
        self.phase = Phase("asked")
        self.cloud = Beside(outer.side)
        self._outer = outer
        self._send = send
        self._ended = ended

    @property
    def side(self) -> SideRuntime:
        return self._outer.side

    @property
    def scope(self) -> Scope:
        return self._outer.scope

    def trace(self, aggregator: Side, alone: bool) -> Recorder | None:
        return self._outer.trace("device", alone=True)

    def send(self, message: Message) -> None:
        self._send(message)

    def note(self, sentence: str, absence: bool = False) -> None:
        self._outer.note(sentence, absence)

    def silent(self, now: float) -> float:
        return self._outer.silent(now)

    def reread(self, apart: Prompt | None, record: AnswerRecord) -> None:
        """Do nothing: there is one document."""

    def committed(self, commit: Commit) -> bool:
        return self._outer.committed(commit)

    def provisional(self, drafts: Sequence[int]) -> None:
        self._outer.provisional(drafts)

    def withdrawn(self, position: int) -> None:
        self._outer.withdrawn(position)

    def ended(self, failure: Exception | None) -> None:
        self._ended(failure)
        self._outer.ended(failure)


class ResidentVerifier(VerifyingCloud):
    """The verifier, whose failure is the answer's."""

    def __init__(
        self,
        request: Open,
        context: CloudContext,
        scheme: Scheme,
        reading: Reading,
        claim: Callable[[Found], PromptRows],
        failed: Callable[[Exception], None],
        scope: Scope,
    ) -> None:
        """`claim` gives the rows with a part of the answer's KV memory. The document is in the device's `scope`."""
        super().__init__(request, context, scheme, reading)
        self._scope = scope
        self._claim = claim
        self._failed = failed

    @property
    def scope(self) -> Scope:
        return self._scope

    def _claimed(self, found: Found) -> PromptRows:
        return self._claim(found)

    def ended(self, failure: Exception | None) -> None:
        if failure is not None:
            self._failed(failure)


class ResidentRapid(RapidDevice):
    """Implements `DeviceHalf` for an answer whose verifier is on this device, too. Nothing leaves."""

    def __init__(self, context: DeviceContext, scheme: Scheme, verifying: Scheme, reading: Reading) -> None:
        """`scheme` is the drafter's, `verifying` the same for the verifier. Raises `RequestError` without a drafter."""
        super().__init__(Inside(context, self._to_verifier, self._stop), scheme, reading)
        self._claim: Claim | None = None  # of both models' memory
        self._drafting: PromptRows | None = None  # what the drafter reads
        side = context.side
        surroundings = CloudContext(side, side.profiler.nobody, self._to_drafter, lambda: 0, _nothing, _waits)
        opening = replace(context.opening, trace=False)  # the drafter's trace has no second side
        self._verifier = ResidentVerifier(
            opening, surroundings, verifying, reading, self._claim_both, self._failed, context.scope
        )

    def start(self, absence: str | None) -> None:
        super().start(None)

    def report(self, closed: Closed | None) -> MethodReport:
        record = self._context.record
        return replace(super().report(closed), attribution=((1.0,),) * len(record.token_times))

    def _claim_both(self, found: Found) -> PromptRows:
        """The verifier's rows, which get memory together with the drafter's: either waits for the other. On the
        retrieval thread, as what follows from it.
        """
        opening, target = self._context.opening, self._context.side.target
        drafting, reserve = self._reading.rows(self._model, opening, found.passages), opening.max_tokens + 1
        self._claim = claimed([target.need(found.rows, reserve), self._model.need(drafting, reserve)])
        own, drafters = self._claim.parts
        if self.over:
            self._claim.withdraw()
        self._drafting = self._noted(replace(drafting, part=drafters))
        return replace(found.rows, part=own)

    def _rows_of(self, passages: list[Passage]) -> PromptRows:
        return super()._rows_of(passages) if self._drafting is None else self._drafting

    def _to_verifier(self, message: Message) -> None:
        if isinstance(message, Open):
            self._verifier.begin()
        elif isinstance(message, Propose | Sync):
            self._later(self._context.side.target.decoding.task, lambda: self._verifier.receive(message))

    def _to_drafter(self, message: Message) -> int:
        if isinstance(message, Ready):
            record = self._context.record
            record.device_titles = message.titles
            record.cloud_prompt_tokens = message.prompt_tokens
        else:
            self._later(self._model.decoding.task, lambda: self.receive(message))
        return 1

    def _failed(self, failure: Exception) -> None:
        self._later(self._model.decoding.task, lambda: self.end(failure))

    def _stop(self, failure: Exception | None) -> None:
        if self._claim is not None:
            self._claim.withdraw()
        self._later(self._context.side.target.decoding.task, self._verifier.end)

    def _later(self, task: Callable[[Callable[[], None]], None], run: Callable[[], object]) -> None:
        """Call `run` on a model's thread, where nothing may be raised."""

        def guarded() -> None:
            try:
                run()
            except Exception as error:
                self.end(as_failure(error))

        task(guarded)


def _nothing(half: CloudHalf) -> None:
    """There is no place to be freed."""


def _waits(half: CloudHalf, kv_bytes: int) -> None:
    """Never called: an answer of the device waits for memory, for both of its models together."""
