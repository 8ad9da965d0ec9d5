"""RAPID: its drafter, its judge, and both halves on one device.

Without passages there is nothing to draft from.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np
import torch

from common.answer.patience import Patience
from common.answer.recorder import Recorder
from common.answer.report import AnswerRecord, MethodReport, Record
from common.answer.request import AnswerFailed, Request, RequestError
from common.answer.values import Commit, Phase
from common.daemon.handshake import as_failure
from common.daemon.model_runtime import ModelRuntime, PromptRows, claimed
from common.daemon.side import Scope, SideRuntime
from common.engine.draw import Drafter
from common.engine.jobs import Prompt
from common.engine.kv.memory import Claim
from common.engine.model.tokenizer import Tokenizer
from common.estimates.peer import PeerEstimates
from common.methods.drafted.cloud import Found, Passage, Reading, VerifyingCloud
from common.methods.drafted.device import DraftingDevice
from common.methods.drafted.drafting import Judgement, RoundsConfig
from common.methods.drafted.method import Scheme, draft_temperature
from common.methods.drafted.rapid_method import RapidRequest
from common.methods.drafted.rejection import (
    TOKEN_BYTES,
    Judged,
    Judging,
    LatticeDrafts,
    LatticeDrawing,
    Proposal,
    SparseDrafts,
    SparseDrawing,
    Undrawn,
    check_proposed,
    finest,
    first_resolution,
    from_support,
    lattice_bytes,
    most_sparse,
    most_units,
    resolutions,
    sparse_bytes,
)
from common.methods.interface import CloudContext, CloudHalf, DeviceContext
from common.methods.passages.long_context import BETWEEN, read_whole
from common.sampling.noise import DrawsAt, Place, seeded
from common.sampling.paper import Distribution, renormalised
from common.sampling.race import Found as RaceFound
from common.sampling.race import Race
from common.sampling.rejection import Warp, accepts, augmented, bonus, coded, likeliest, paper_replacement, replacement
from common.transport.sending import largest_payload
from proto.errors import malformed
from proto.messages import (
    LARGEST_PROPOSAL,
    MOST_FETCHED,
    MOST_PROPOSED,
    Closed,
    Hello,
    Message,
    Open,
    Propose,
    Ready,
    Side,
    Sync,
)
from proto.payloads.lattice import IndexCode, decode_lattice
from proto.payloads.race import decode_sparse

NOTHING_READ = (
    "The draft model read no passage of the document: the most similar one is below retrieval_threshold, or has more "
    "tokens than retrieval_tokens or the draft model's context."
)


class RapidDevice(DraftingDevice):
    """Implements `DeviceHalf`."""

    def without_cloud(self, sentence: str) -> None:
        """Go on with the passages that came; without any the answer fails, as the document is not here."""
        if self.reading:
            self.end(AnswerFailed(sentence))
        else:
            super().without_cloud(sentence)

    def _rows_of(self, passages: list[Passage]) -> PromptRows:
        return self._noted(super()._rows_of(passages))

    def _noted(self, rows: PromptRows) -> PromptRows:
        if not rows.texts:
            self._context.note(NOTHING_READ)
        return rows

    def report(self, closed: Closed | None) -> MethodReport:
        request, part = self._context.request, super().report(closed)
        assert isinstance(request, RapidRequest)
        own = {"exact": float(request.lawful), "eta": request.eta}
        return replace(part, figures={**part.figures, **own})


# --- reading
# Readings of rapid's two sides: a document whole, and the passages of it that fit the question (RAPID, §2.3).

LEAST_RETRIEVED: Final = 4096  # tokens that the drafter reads, where it is left open
COMPRESSION: Final = 24  # of a document so long that its 24th is more


@dataclass(frozen=True, slots=True)
class DocumentReading:
    """Implements `Reading`: the verifier's row is the document, the drafter's has its passages in their order."""

    request: RapidRequest
    most: int = MOST_FETCHED

    def find(self, side: SideRuntime, request: Open, scope: Scope) -> Found:
        """Raises `RequestError` for a document that is not there, or that the model's context does not hold."""
        whole = read_whole(side, self.request.long_document, request, scope)
        limit = self.request.retrieval_tokens or max(LEAST_RETRIEVED, whole.tokens // COMPRESSION)
        near = [hit for hit in whole.chunks if hit.similarity >= self.request.retrieval_threshold]
        passages = [Passage(hit.source, hit.similarity, hit.text, scope.library is not None) for hit in near]
        return Found(whole.rows, chosen(side.target.decoder.tokenizer, passages, limit))

    def rows(self, model: ModelRuntime, request: Open, passages: Sequence[Passage]) -> PromptRows:
        """Passages that the drafter's context has no room for are left out, those that fit the question least first;
        the request's own take the place of the document's, and must fit: raises `RequestError`.
        """
        own = [Passage(self.request.long_document, 1.0, text, passing=True) for text in self.request.passages]
        room = model.room(request)
        kept = chosen(model.decoder.tokenizer, own or passages, room - len(model.document("", "", 0.0).tokens))
        if len(kept) < len(own):
            raise RequestError(
                f"The draft model's context holds {max(room, 0)} tokens beside question and answer, and the passages "
                "have more: send fewer.",
                "passages",
            )
        if not kept:
            return model.arrange(request, (), ())
        text = BETWEEN.join(each.text for each in kept)
        best = max(kept, key=lambda each: each.similarity)
        document = model.document(best.title, text, best.similarity, room)
        return model.arrange(request, [replace(document, passing=best.passing)], ())


def chosen(tokenizer: Tokenizer, passages: Sequence[Passage], limit: int) -> list[Passage]:
    """The most similar of `passages` that have `limit` tokens together, in their own order; not more than travel."""
    kept: list[int] = []
    left = limit
    for place in sorted(range(len(passages)), key=lambda place: -passages[place].similarity)[:MOST_FETCHED]:
        left -= len(tokenizer.encode(passages[place].text + BETWEEN))
        if left < 0:
            break
        kept.append(place)
    return [passages[place] for place in sorted(kept)]


# --- scheme
# The mathematics of rapid: proposals are judged by p̂, the verifier's distribution moved towards the drafter's.
#
# For an answer to follow p̂, whatever was proposed, the residual is that of p̂, and the bonus comes from p̂ as well,
# which
# takes the drafter's distribution at its position: proposals have one more distribution than tokens. At temperature 0
# the
# shift is that of temperature 1, and what is most probable then is the answer.


@dataclass(frozen=True, slots=True)
class Greedy:
    """Implements `Drafter`: proposes what is most probable in the distribution of `drawing`, which travels."""

    drawing: SparseDrawing | LatticeDrawing

    def race(self, position: int) -> Race | None:
        return None

    def drafted(self, position: int, probabilities: torch.Tensor, found: RaceFound | None) -> Undrawn[Any]:
        view: Undrawn[Any] = self.drawing.drafted(position, probabilities, found)
        return replace(view, source=likeliest(view.distribution))


@dataclass(frozen=True, slots=True)
class RapidProposal(Proposal):
    """A proposed token; the last one of a proposal has the distribution where a bonus is drawn behind it."""

    behind: Distribution | None = None


@dataclass(frozen=True, slots=True)
class RapidJudge:
    """Implements `Judge`."""

    slow: ClassVar[bool] = True

    draws: DrawsAt
    config: RoundsConfig
    check_payload: Callable[[bytes], None]
    decode: Callable[[bytes], list[Distribution]]
    eta: float
    greedy: bool  # the verifier's temperature is 0
    paper: bool  # residual and bonus as published: what follows is neither p nor p̂

    def check(self, message: Propose) -> None:
        self.check_payload(message.payload)

    def read(self, message: Propose) -> Sequence[RapidProposal]:
        tokens, known = message.tokens, self.decode(message.payload)
        ends = bool(tokens) and self.config.ends(tokens[-1], message.position + len(tokens))
        if len(known) != len(tokens) + (not ends):
            raise malformed("a proposal must have a distribution for each of its tokens, and one where a bonus is due")
        proposed = [from_support(token, each) for token, each in zip(tokens, known, strict=False)]
        behind: list[Distribution | None] = [None] * len(proposed)
        if behind and not ends:
            behind[-1] = known[-1]
        return [
            RapidProposal(each.token, each.probability, each.distribution, distribution)
            for each, distribution in zip(proposed, behind, strict=True)
        ]

    def judge(self, place: Place, proposed: Sequence[RapidProposal], targets: Sequence[Judged]) -> Judgement:
        for accepted, (draft, target) in enumerate(zip(proposed, targets, strict=False)):
            drafter, draws = draft.distribution, self.draws(place)
            if drafter is None:
                raise ValueError("the drafter's distribution is not known here")
            shifted = self._shifted(target.distribution, drafter)
            if not accepts(draft.token, draft.probability, shifted, draws):
                if self.paper:
                    own = self._settled(target.distribution)
                    return Judgement(accepted, paper_replacement(own, shifted, drafter, draws))
                return Judgement(accepted, replacement(shifted, drafter, draws))
            place = place.behind(draft.token)
        if len(targets) == len(proposed):
            return Judgement(len(proposed), None)
        own, behind = targets[len(proposed)].distribution, proposed[-1].behind
        if behind is None:
            raise ValueError("the drafter's distribution is not known where a bonus is due")
        law = self._settled(own) if self.paper else self._shifted(own, behind)
        return Judgement(len(proposed), bonus(law, self.draws(place)))

    def _shifted(self, verifier: Distribution, drafter: Distribution) -> Distribution:
        return self._settled(augmented(verifier, drafter, self.eta))

    def _settled(self, distribution: Distribution) -> Distribution:
        return likeliest(distribution) if self.greedy else distribution


@dataclass(frozen=True, slots=True)
class RapidScheme:
    """Implements `Scheme`."""

    config: RoundsConfig
    token_bytes: Mapping[int | None, float]
    drafter: Drafter
    drafts: SparseDrafts | LatticeDrafts
    verifier: Judging
    judge: RapidJudge

    @property
    def cut(self) -> Warp | None:
        return self.verifier.cut


def rapid_scheme(opening: Open, request: RapidRequest, vocabulary: int) -> RapidScheme:
    """The scheme of one answer. Raises `RequestError` for proposals that no message holds."""
    config = replace(RoundsConfig.of(opening, vocabulary, ahead=False), lookahead=True, defers=False)
    draws = seeded(opening.seed)
    own = draft_temperature(opening, request)
    # At temperature 0 nothing is drawn by a ratio; what travels then is what the shift needs, at temperature 1.
    warmth = (own or 1.0) if opening.temperature == 0 else own
    warp = Warp(warmth, request.top_k, opening.top_p)
    drawing: SparseDrawing | LatticeDrawing
    drafts: SparseDrafts | LatticeDrafts
    check: Callable[[bytes], None]
    decode: Callable[[bytes], list[Distribution]]
    if request.draft_codec == "lattice":
        listed = lattice_bytes(request, vocabulary)
        config = replace(config, most=most_units(request, finest(listed), behind=1))
        sizes: dict[int | None, float] = {each: size + TOKEN_BYTES for each, size in listed.items()}
        drawing = LatticeDrawing(warp, first_resolution(listed))
        drafts = LatticeDrafts(draws, drawing, vocabulary, request.index_code, named=False)
        check = partial(_claimed, request.index_code, vocabulary, frozenset(resolutions(listed)))
        decode = partial(_of_lattice, request.index_code, vocabulary)
    else:
        # On one device nothing travels, and messages have their own bound only.
        payload = LARGEST_PROPOSAL if request.verifier == "device" else largest_payload(vocabulary)
        config = replace(config, most=most_sparse(request, vocabulary, payload, behind=1))
        sizes = {None: sparse_bytes(request.top_k, vocabulary)}
        drawing, drafts, decode = SparseDrawing(warp), SparseDrafts(draws), partial(_of_codes, vocabulary)
        check = _nothing
    drafter = Greedy(drawing) if own == 0 else drawing
    verifying = Judging(Warp(opening.temperature or 1.0, request.top_k, opening.top_p), travels=False)
    paper = request.residual == "paper"
    judge = RapidJudge(draws, config, check, decode, request.eta, opening.temperature == 0, paper)
    return RapidScheme(config, sizes, drafter, drafts, verifying, judge)


def _nothing(payload: bytes) -> None:
    """Refuse nothing: codes are read as quickly as they come."""


def _claimed(code: IndexCode, vocabulary: int, resolutions: Collection[int], payload: bytes) -> None:
    check_proposed(payload, code, vocabulary, MOST_PROPOSED + 1, resolutions)


def _of_codes(vocabulary: int, payload: bytes) -> list[Distribution]:
    return [coded(each.ids, each.codes) for each in decode_sparse(payload, vocabulary, MOST_PROPOSED + 1)]


def _of_lattice(code: IndexCode, vocabulary: int, payload: bytes) -> list[Distribution]:
    most = MOST_PROPOSED + 1
    listed = decode_lattice(payload, code, vocabulary, most, without=most)
    return [renormalised(entries.ids, entries.counts.astype(np.float64)) for entries, _ in listed]


# --- resident
# Rapid on one device: the two halves of the network, with their messages handed over between the models' threads.
#
# Messages are tasks of the receiver's engine thread, as neither half may be called under the other's lock.

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
        surroundings = CloudContext(side, side.profiler.nobody, self._to_drafter, lambda: 0, _resident_nothing, _waits)
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


def _resident_nothing(half: CloudHalf) -> None:
    """There is no place to be freed."""


def _waits(half: CloudHalf, kv_bytes: int) -> None:
    """Never called: an answer of the device waits for memory, for both of its models together."""
