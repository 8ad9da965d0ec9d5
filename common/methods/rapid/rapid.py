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

from common.answer.report import MethodReport
from common.answer.request import AnswerFailed, RequestError
from common.daemon.handshake import as_failure
from common.daemon.model_runtime import ModelRuntime, PromptRows
from common.daemon.side import Scope, SideRuntime
from common.engine.draw import Drafter
from common.engine.kv.memory import Claim
from common.engine.model.tokenizer import Tokenizer
from common.estimates.profiler import PeerEstimates
from common.methods.drafted.cloud import Passage, PassageReading, Retrieved, VerifyingCloud
from common.methods.drafted.device import DraftingDevice
from common.methods.drafted.distributions import (
    TOKEN_BYTES,
    DrafterView,
    LatticeDrafts,
    LatticeDrawing,
    Proposal,
    SparseDrafts,
    SparseDrawing,
    TargetView,
    VerifierDrawing,
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
from common.methods.drafted.drafting import Judgement, RoundsConfig
from common.methods.drafted.method import Scheme, draft_temperature
from common.methods.drafted.payloads import IndexCode, decode_lattice, decode_sparse
from common.methods.interface import CloudContext, DeviceContext
from common.methods.rapid.long_context import BETWEEN, read_document
from common.methods.rapid.method import RapidRequest
from common.sampling.compiled import DrawPoint, DrawsAt, seeded
from common.sampling.race import Found, Race
from common.sampling.rejection import Warp, accepts, augmented, bonus, coded, likeliest, paper_replacement, replacement
from common.sampling.truncation import Distribution, renormalised
from common.transport.sending import largest_payload
from proto.errors import malformed
from proto.messages import (
    LARGEST_PROPOSAL,
    MOST_FETCHED,
    MOST_PROPOSED,
    Closed,
    Message,
    Open,
    Propose,
    Ready,
)

NOTHING_READ = (
    "The draft model read no passage of the document: the most similar one is below retrieval_threshold, or has more "
    "tokens than retrieval_tokens or the draft model's context."
)


class RapidDevice(DraftingDevice):
    """Implements `DeviceHalf`."""

    def without_cloud(self, sentence: str) -> None:
        """Continue with passages; without them the answer fails, as the document is remote."""
        if self.reading:
            self.end(AnswerFailed(sentence))
        else:
            super().without_cloud(sentence)

    def rows(self, passages: list[Passage]) -> PromptRows:
        rows = super().rows(passages)
        if not rows.texts:
            self.context.note(NOTHING_READ)
        return rows

    def report(self, closed: Closed | None) -> MethodReport:
        request, part = self.context.request, super().report(closed)
        assert isinstance(request, RapidRequest)
        own = {"exact": float(request.lawful), "eta": request.eta}
        return replace(part, figures={**part.figures, **own})


# --- reading
# A whole document, and its passages for the question (RAPID, §2.3).

LEAST_RETRIEVED: Final = 4096  # default tokens for the drafter
COMPRESSION: Final = 24  # the drafter reads a 24th of a longer document


@dataclass(frozen=True, slots=True)
class DocumentReading:
    """Implements `PassageReading`: the document, and its passages in order."""

    request: RapidRequest
    most: int = MOST_FETCHED

    def find(self, side: SideRuntime, request: Open, scope: Scope) -> Retrieved:
        """Raises `RequestError` for a document that is missing or exceeds the context."""
        whole = read_document(side, self.request.long_document, request, scope)
        limit = self.request.retrieval_tokens or max(LEAST_RETRIEVED, whole.tokens // COMPRESSION)
        near = [hit for hit in whole.chunks if hit.similarity >= self.request.retrieval_threshold]
        passages = [Passage(hit.source, hit.similarity, hit.text, scope.library is not None) for hit in near]
        return Retrieved(whole.rows, choose_passages(side.target.decoder.tokenizer, passages, limit))

    def rows(self, model: ModelRuntime, request: Open, passages: Sequence[Passage]) -> PromptRows:
        """Drop the least similar passages beyond the drafter's context.

        The request's own passages replace the document's, and must fit: raises `RequestError`.
        """
        own = [Passage(self.request.long_document, 1.0, text, passing=True) for text in self.request.passages]
        room = model.room(request)
        kept = choose_passages(model.decoder.tokenizer, own or passages, room - len(model.document("", "", 0.0).tokens))
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


def choose_passages(tokenizer: Tokenizer, passages: Sequence[Passage], limit: int) -> list[Passage]:
    """The most similar passages within `limit` tokens and a message, in order."""
    kept: list[int] = []
    left = limit
    for place in sorted(range(len(passages)), key=lambda place: -passages[place].similarity)[:MOST_FETCHED]:
        left -= len(tokenizer.encode(passages[place].text + BETWEEN))
        if left < 0:
            break
        kept.append(place)
    return [passages[place] for place in sorted(kept)]


# --- scheme
# Proposals are judged by p̂, the verifier's distribution shifted towards the drafter's.
#
# To follow p̂, residual and bonus come from p̂. The bonus needs the drafter's distribution, so proposals have one more
# than tokens. At temperature 0 the shift uses temperature 1, and its most probable token is the answer.


@dataclass(frozen=True, slots=True)
class GreedyDrafter:
    """Implements `Drafter`: proposes the sent distribution's most probable token."""

    drawing: SparseDrawing | LatticeDrawing

    def race(self, position: int) -> Race | None:
        return None

    def drafted(self, position: int, probabilities: torch.Tensor, found: Found | None) -> DrafterView[Any]:
        view: DrafterView[Any] = self.drawing.drafted(position, probabilities, found)
        return replace(view, source=likeliest(view.distribution))


@dataclass(frozen=True, slots=True)
class RapidProposal(Proposal):
    """A proposed token; the last has the bonus position's distribution."""

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
    paper: bool  # as published: neither p nor p̂

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

    def judge(self, place: DrawPoint, proposed: Sequence[RapidProposal], targets: Sequence[TargetView]) -> Judgement:
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
    verifier: VerifierDrawing
    judge: RapidJudge

    @property
    def cut(self) -> Warp | None:
        return self.verifier.cut


def rapid_scheme(opening: Open, request: RapidRequest, vocabulary: int) -> RapidScheme:
    """Make an answer's scheme. Raises `RequestError` for proposals too large for messages."""
    config = replace(RoundsConfig.of(opening, vocabulary, ahead=False), lookahead=True, defers=False)
    draws = seeded(opening.seed)
    own = draft_temperature(opening, request)
    # Temperature 0 draws nothing by ratios; the shift needs temperature 1.
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
        # Nothing is sent on one device, but messages have a limit.
        payload = LARGEST_PROPOSAL if request.verifier == "device" else largest_payload(vocabulary)
        config = replace(config, most=most_sparse(request, vocabulary, payload, behind=1))
        sizes = {None: sparse_bytes(request.top_k, vocabulary)}
        drawing, drafts, decode = SparseDrawing(warp), SparseDrafts(draws), partial(_of_codes, vocabulary)
        check = _nothing
    drafter = GreedyDrafter(drawing) if own == 0 else drawing
    verifying = VerifierDrawing(Warp(opening.temperature or 1.0, request.top_k, opening.top_p), travels=False)
    paper = request.residual == "paper"
    judge = RapidJudge(draws, config, check, decode, request.eta, opening.temperature == 0, paper)
    return RapidScheme(config, sizes, drafter, drafts, verifying, judge)


def _nothing(payload: bytes) -> None:
    """Refuse nothing: codes are read quickly."""


def _claimed(code: IndexCode, vocabulary: int, resolutions: Collection[int], payload: bytes) -> None:
    check_proposed(payload, code, vocabulary, MOST_PROPOSED + 1, resolutions)


def _of_codes(vocabulary: int, payload: bytes) -> list[Distribution]:
    return [coded(each.ids, each.codes) for each in decode_sparse(payload, vocabulary, MOST_PROPOSED + 1)]


def _of_lattice(code: IndexCode, vocabulary: int, payload: bytes) -> list[Distribution]:
    most = MOST_PROPOSED + 1
    listed = decode_lattice(payload, code, vocabulary, most, without=most)
    return [renormalised(entries.ids, entries.counts.astype(np.float64)) for entries, _ in listed]


# --- resident
# Both halves on one device, with a loop-back link.


class LoopBack:
    """Delivers messages to a half in this process, on its model's thread.

    Neither half may be called under the other's lock. An exception ends the answer.
    """

    def __init__(self, model: ModelRuntime, failed: Callable[[Exception], object]) -> None:
        self._task = model.decoding.on_model_thread
        self._failed = failed

    def call(self, run: Callable[[], object]) -> None:
        def guarded() -> None:
            try:
                run()
            except Exception as error:
                self._failed(as_failure(error))

        self._task(guarded)


class ResidentVerifier(VerifyingCloud):
    """The verifier beside its drafter. They claim memory together; its failure ends the answer."""

    def __init__(self, device: ResidentRapid, context: CloudContext, scheme: Scheme, reading: PassageReading) -> None:
        opening = replace(device.context.opening, trace=False)  # the drafter's trace has no second side
        super().__init__(opening, context, scheme, reading)
        self._device = device

    @property
    def scope(self) -> Scope:
        return self._device.context.scope

    def placed(self, found: Retrieved) -> PromptRows:
        return self._device.claim(found)

    def ended(self, failure: Exception | None) -> None:
        if failure is not None:
            self._device.down.call(lambda: self._device.end(failure))


class ResidentRapid(RapidDevice):
    """Implements `DeviceHalf` with a local verifier. No data leaves the device."""

    verified_here = True

    def __init__(self, context: DeviceContext, scheme: Scheme, verifying: Scheme, reading: PassageReading) -> None:
        """`verifying` is the verifier's copy of `scheme`. Raises `RequestError` without a drafter."""
        super().__init__(context, scheme, reading)
        self._claim: Claim | None = None  # both models'
        self._drafting: PromptRows | None = None  # the drafter's
        side = context.side
        self.up, self.down = LoopBack(side.target, self.end), LoopBack(self.model, self.end)
        # Memory is claimed for both models at once, and no session slot is used.
        surroundings = CloudContext(side, self.peer, self._to_drafter, lambda: 0, self._freed, self._freed)
        self._verifier = ResidentVerifier(self, surroundings, verifying, reading)

    @property
    def peer(self) -> PeerEstimates:
        return self.context.side.profiler.nobody

    def start(self, absence: str | None) -> None:
        super().start(None)

    def tick(self, now: float) -> None:
        """Wait for the local verifier without limit."""

    def report(self, closed: Closed | None) -> MethodReport:
        record = self.context.record
        return replace(super().report(closed), attribution=((1.0,),) * len(record.token_times))

    def claim(self, found: Retrieved) -> PromptRows:
        """Claim memory for both models' rows at once, as each waits for the other.

        Runs on the retrieval thread, as everything after it.
        """
        opening, target = self.context.opening, self.context.side.target
        drafting, reserve = super().rows(list(found.passages)), opening.max_tokens + 1
        self._claim = Claim([target.need(found.rows, reserve), self.model.need(drafting, reserve)])
        own, drafters = self._claim.parts
        if self.over:
            self._claim.withdraw()
        self._drafting = replace(drafting, part=drafters)
        return replace(found.rows, part=own)

    def rows(self, passages: list[Passage]) -> PromptRows:
        return super().rows(passages) if self._drafting is None else self._drafting

    def send(self, message: Message) -> None:
        if isinstance(message, Open):
            self._verifier.begin()
        else:
            self.up.call(lambda: self._verifier.receive(message))

    def ended(self, failure: Exception | None) -> None:
        if self._claim is not None:
            self._claim.withdraw()
        self.up.call(self._verifier.end)
        super().ended(failure)

    def _to_drafter(self, message: Message) -> int:
        if isinstance(message, Ready):
            self.context.record.device_titles = message.titles
            self.context.record.cloud_prompt_tokens = message.prompt_tokens
        self.down.call(lambda: self.receive(message))
        return 1

    def _freed(self, *_: object) -> None:
        """There are no session slots."""
