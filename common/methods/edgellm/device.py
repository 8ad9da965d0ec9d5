"""EdgeLLM: the device answers with documents, a draft model and a verifying model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import numpy as np
import torch
from numpy.typing import NDArray

from common.answer.driver import Driver, ModelSeat, ModelThread, Observer, Preview
from common.answer.recorder import Recorder
from common.answer.report import MethodReport, SideReport, attribute_to_device
from common.answer.request import RequestError
from common.answer.values import Commit, SideDraft, TreeWork
from common.daemon.model_runtime import Document, ModelRuntime, PromptRows
from common.daemon.side import SideRuntime
from common.engine.jobs import DecodeRequest
from common.engine.kv.memory import Claim
from common.methods.edgellm.growth import (
    AdaptiveGrowth,
    Agreement,
    BestFirst,
    Candidate,
    EvenGrowth,
    Growth,
    NoGrowth,
    Threshold,
    TreeTimes,
)
from common.methods.edgellm.method import EdgeRequest
from common.methods.edgellm.rounds import TreeConfig, TreeRounds
from common.methods.handing import GatheringDevice
from common.methods.interface import DeviceContext
from common.sampling.race import Found, Race, Racing
from common.sampling.rejection import Warp
from proto.messages import Closed, Message, Open

# --- history


@dataclass(slots=True)
class TreeHistory:
    """Measured times and agreement of a device's two models, across answers.

    The draft model's thread reports its steps, the verifier's thread the rest. Both read without a lock.
    """

    times: TreeTimes
    agreement: Agreement = field(default_factory=Agreement)

    @classmethod
    def of(cls, side: SideRuntime) -> TreeHistory:
        return side.histories.of(cls, "", lambda: cls.expecting(side.drafter, side.local_target or side.target))

    @classmethod
    def expecting(cls, drafter: ModelRuntime | None, verifier: ModelRuntime) -> Self:
        """Initial times, measured when the models were loaded."""
        draft, verify = 0.0 if drafter is None else drafter.decoding.times.step, verifier.decoding.times
        # A streamed model reads its weights in every pass; more tokens are free until measured.
        node = verify.token if verifier.decoder.streamed is None else 0.0
        return cls(TreeTimes(draft, verify.step, node))


# --- driver


class TreeDriver(Driver):
    """The state machine with both models' parts; `drafter` and `verifier` serve their threads."""

    def __init__(
        self,
        rounds: TreeRounds,
        history: TreeHistory,
        drafting: ModelThread | None,
        verifying: ModelThread,
        observer: Observer,
        recorder: Recorder | None = None,
        preview: Preview | None = None,
    ) -> None:
        """Without `drafting` nothing is drafted."""
        engines = [verifying] if drafting is None else [verifying, drafting]
        super().__init__("device", rounds, engines, _nowhere, observer, recorder, preview)
        self.rounds = rounds
        self.history = history
        self.drafter = ModelSeat(self, rounds.draft, self._drafted)
        self.verifier = ModelSeat(self, self._verify, self._verified)
        self._asked: int | None = None  # epoch of the latest verification request

    # --- under the lock

    def _drafted(self, work: TreeWork, drawn: Sequence[SideDraft], seconds: float, now: float) -> None:
        if work.path or work.tokens:  # else the pass read the question
            self.history.times.drafted(seconds)
        view: Any = drawn[0].view
        self.rounds.drafted(work, view.candidates)
        if self._preview is not None:
            self._preview.show()
        if self.rounds.draft() is None:
            self.wake()

    def _verify(self) -> TreeWork | None:
        found = self.rounds.verify()
        if found is not None and found.epoch != self._asked:
            self._asked = found.epoch
            self.wake()  # drafting may continue
        return found

    def _verified(self, work: TreeWork, drawn: Sequence[SideDraft], seconds: float, now: float) -> Sequence[object]:
        if work.path:  # else the pass read the question
            self.history.times.verified(len(work.tokens), seconds)
        outcome = self.rounds.verified(work, [draft.view.token for draft in drawn])
        decided = [action for action in outcome.actions if isinstance(action, Commit)]
        for commit, place in zip(decided, outcome.places, strict=False):
            self.record.drafted(commit.position, [drawn[place]])
        return outcome.actions


def _nowhere(message: Message) -> None:
    """Send nothing: the cloud takes no part."""


# --- drawing

MOST_CANDIDATES: Final = 64  # after one node


@dataclass(frozen=True, slots=True)
class Following:
    """The first finishers, fastest first."""

    candidates: tuple[Candidate, ...]

    @property
    def token(self) -> int:
        return self.candidates[0].token

    @property
    def listed(self) -> NDArray[np.integer]:
        return np.asarray([self.token])


@dataclass(frozen=True, slots=True)
class Finishers:
    """Implements `Drafter`: runs the verifier's race (same noise E) on the draft distribution q.

    The verifier draws argmax p_i / E_i^T, so tokens with large speeds q_i / E_i^T are likely. A candidate's probability
    is its share of the speeds. Unlisted tokens count with E = 1. At temperature 0 it is q_i.
    """

    seed: int
    temperature: float
    count: int = MOST_CANDIDATES

    def race(self, position: int) -> Race:
        return Race(self.seed, position, self.temperature, self.count)

    def drafted(self, position: int, probabilities: torch.Tensor, found: Found | None) -> Following:
        """Raises `ValueError` for a mixture without a positive probability."""
        if found is None or not len(found[0]):
            raise ValueError(f"the mixture at position {position} has no positive probability")
        ids, speeds = found
        order = np.argsort(-speeds, kind="stable")
        unlisted = max(0.0, 1.0 - float(probabilities[torch.from_numpy(ids).to(probabilities.device)].sum()))
        shares = speeds / (speeds.sum() + unlisted)
        pairs = zip(ids[order].tolist(), shares[order].tolist(), strict=True)
        return Following(tuple(Candidate(token, share) for token, share in pairs))


# --- beginning


def verifier_reserve(opening: Open, nodes: int) -> int:
    """Tokens after the query in the verifier's rows: answer and tree."""
    return opening.max_tokens + 1 + nodes


def drafter_reserve(opening: Open, nodes: int) -> int:
    """The same in the draft model's rows, which may hold two trees."""
    return verifier_reserve(opening, nodes) + nodes


def begin_trees(
    driver: TreeDriver,
    target: ModelRuntime,
    drafter: ModelRuntime | None,
    context: DeviceContext,
    found: PromptRows,
    nodes: int,
    cut: Warp | None = None,
) -> None:
    """Start target and optional drafter on the rows in `found`.

    Both run the same race among the tokens that `cut` keeps (None: the processors'). The target verifies trees of up to
    `nodes` nodes. Both claim memory together, as separate claims could deadlock.

    Raises `RequestError` for unusable processors, and rows that never fit.
    """
    opening, asker = context.opening, context.record.asker
    seed, temperature = opening.seed, opening.temperature
    racing = DecodeRequest(driver.verifier, Racing(seed, temperature), asker=asker)
    finishing = DecodeRequest(driver.drafter, Finishers(seed, temperature), asker=asker)
    needs = [target.need(found, verifier_reserve(opening, nodes))]
    if drafter is not None:
        needs.append(drafter.need(found, drafter_reserve(opening, nodes)))
    claim = Claim(needs)
    try:
        rows, reserve = replace(found, part=claim.parts[0]), verifier_reserve(opening, nodes)
        target.read(racing, rows, reserve, target.processor(opening, cut=cut))
        if drafter is not None:
            rows, reserve = replace(found, part=claim.parts[1]), drafter_reserve(opening, nodes)
            drafter.read(finishing, rows, reserve, drafter.processor(opening, cut=cut))
    except BaseException:
        claim.withdraw()
        raise


# --- device_half


class EdgeDevice(GatheringDevice):
    """Implements `DeviceHalf`. Shown tokens were drawn by the verifier."""

    answer: TreeDriver

    def __init__(self, context: DeviceContext) -> None:
        """Raises `RequestError` if a needed draft model is missing."""
        request, side, opening = context.request, context.side, context.opening
        assert isinstance(request, EdgeRequest)
        self._target = side.local_target or side.target
        self._drafter = None if request.growth == "none" else side.drafter
        if self._drafter is None and request.growth != "none":
            raise RequestError(
                "Method 'edgellm' needs a draft model, and this device has none: set draft_model, or growth 'none'.",
                "method",
            )
        self._nodes = max(request.tree_size, request.draft_length)
        rooms = [self._target.room(opening, verifier_reserve(opening, self._nodes))]
        if self._drafter is not None:
            rooms.append(self._drafter.room(opening, drafter_reserve(opening, self._nodes)))
        super().__init__(context, "text", max(0, min(rooms)), both=request.sources == "both")
        # A target in memory never waits, and two computing models slow each other down.
        ahead = request.ahead and self._target.decoder.streamed is not None
        config = TreeConfig(frozenset(opening.eos), opening.max_tokens, ahead)
        self._rounds = TreeRounds(config, make_growth(request, TreeHistory.of(side)))
        self.answer = TreeDriver(
            self._rounds,
            TreeHistory.of(side),
            None if self._drafter is None else self._drafter.decoding,
            self._target.decoding,
            context,
            context.trace("device", alone=True),
            Preview(lambda: self._rounds.provisional, context.provisional) if request.provisional else None,
        )
        self._before = self._spent()

    # --- DeviceHalf

    @property
    def away(self) -> bool:
        return True

    def report(self, closed: Closed | None) -> MethodReport:
        counters, drafter, verifier = self._rounds.counters, self.answer.drafter, self.answer.verifier
        waited, read = self._spent()
        passes = max(counters.rounds, 1)
        shares = attribute_to_device(self.context.record, self.answer.record.shares).shares
        return MethodReport(
            device=SideReport(
                drafted=counters.drafted,
                accepted=counters.accepted,
                rollbacks=counters.rejected,
                preempted=drafter.preempted + verifier.preempted,
                decode_ms=drafter.step_ms,
            ),
            attribution=shares if self.answer.record.apart else (),
            figures={
                "rounds": float(counters.rounds),
                "nodes_per_round": counters.nodes / passes,
                "accepted_per_round": counters.accepted / passes,
                "drafted_ahead": float(counters.ahead),
                "kept_ahead": float(counters.kept),
                "verify_ms": 1e3 * verifier.seconds / passes,
                "draft_seconds": drafter.seconds,
                "waited_seconds": waited - self._before[0],
                "read_bytes": float(read - self._before[1]),
            },
        )

    def _spent(self) -> tuple[float, int]:
        """Seconds that the target has waited for layers, and bytes read."""
        streamed = self._target.decoder.streamed
        return (0.0, 0) if streamed is None else (streamed.counters.waited, streamed.read.bytes)

    def found(self, own: list[Document], fetched: list[Document]) -> None:
        """Begin on rows of the documents, the same for both models."""
        context, opening, driver = self.context, self.context.opening, self.answer
        rows = self._target.arrange(opening, own, fetched, self._room)
        rows.note(context.record)
        context.reread(rows.apart, driver.record)
        begin_trees(driver, self._target, self._drafter, context, rows, self._nodes)


def make_growth(request: EdgeRequest, history: TreeHistory) -> Growth:
    """Make the request's rule; 'width' fits as many branches as the tree holds."""
    match request.growth:
        case "chain":
            return EvenGrowth(request.draft_length)
        case "width":
            return EvenGrowth(request.draft_length, max(1, request.tree_size // request.draft_length))
        case "none":
            return NoGrowth()
        case "adaptive":
            return AdaptiveGrowth(request.tree_size, Threshold(request.threshold))
        case _:
            return BestFirst(request.tree_size, history.times, history.agreement)
