"""The device's half, which is all there is: documents, a draft model, and a model that verifies."""

from __future__ import annotations

from statistics import median

from common.methods.attribution import DIGITS
from common.methods.coupled.scheme import Racing
from common.methods.edgellm.drawing import Likeliest
from common.methods.edgellm.driver import TreeDriver, rounded
from common.methods.edgellm.method import EdgeRequest
from common.methods.interface import DeviceContext
from common.methods.report import MethodReport, SideReport
from common.runtime.errors import RequestError
from common.trees.growth import Adaptive, Even, Growth, Nothing
from common.trees.rounds import TreeConfig, TreeRounds
from common.trees.threshold import Threshold
from proto.messages import Closed, Message


class EdgeDevice:
    """Implements `DeviceHalf`. A shown token was drawn by the verifier."""

    def __init__(self, context: DeviceContext) -> None:
        """Raises `RequestError` without a draft model, where one is needed."""
        request, side, opening = context.request, context.side, context.opening
        assert isinstance(request, EdgeRequest)
        self._context = context
        self._target = side.local_target or side.target
        self._drafter = None if request.growth == "none" else side.drafter
        if self._drafter is None and request.growth != "none":
            raise RequestError(
                "Method 'edgellm' needs a draft model, and this device has none: set draft_model, or growth 'none'.",
                "method",
            )
        self._nodes = max(request.tree_size, request.draft_length)
        streamed = self._target.decoder.streamed
        threshold = Threshold(request.threshold)
        config = TreeConfig(frozenset(opening.eos), opening.max_tokens, request.ahead and streamed is not None)
        self._rounds = TreeRounds(config, make_growth(request, threshold), threshold)
        self._driver = TreeDriver(
            self._rounds,
            None if self._drafter is None else self._drafter.decoding,
            self._target.decoding,
            context.committed,
            context.provisional if request.provisional else None,
            context.ended,
            context.trace("device", alone=True),
        )
        self._streamed = streamed
        self._before = (0.0, 0) if streamed is None else (streamed.counters.waited, streamed.read.bytes)

    # --- DeviceHalf

    @property
    def over(self) -> bool:
        return self._driver.over

    @property
    def waiting(self) -> bool:
        return False

    @property
    def away(self) -> bool:
        return True

    def start(self, absence: str | None) -> None:
        self._context.side.later(self._read, self.end)

    def receive(self, message: Message) -> None:
        """Nobody was asked for anything."""

    def without_cloud(self, sentence: str) -> None:
        """It was never needed."""

    def reconnected(self) -> None:
        """It has no part in the answer."""

    def tick(self, now: float) -> None:
        """Nothing is waited for."""

    def end(self, failure: Exception | None) -> None:
        self._driver.end(failure)

    def report(self, closed: Closed | None) -> MethodReport:
        counters, drafter, verifier = self._rounds.counters, self._driver.drafter, self._driver.verifier
        waited, read = (
            (0.0, 0) if self._streamed is None else (self._streamed.counters.waited, self._streamed.read.bytes)
        )
        passes, tokens = max(counters.rounds, 1), len(self._context.record.token_times)
        return MethodReport(
            device=SideReport(
                drafted=counters.drafted,
                accepted=counters.accepted,
                rollbacks=counters.rejected,
                preempted=drafter.preempted + verifier.preempted,
                decode_ms=1e3 * median(drafter.seconds) if drafter.seconds else 0.0,
            ),
            attribution=()
            if self._context.request.aggregation == "context"
            else rounded(self._driver.shares[:tokens], DIGITS),
            figures={
                "rounds": float(counters.rounds),
                "nodes_per_round": counters.nodes / passes,
                "accepted_per_round": counters.accepted / passes,
                "drafted_ahead": float(counters.ahead),
                "kept_ahead": float(counters.kept),
                "verify_ms": 1e3 * median(verifier.seconds) if verifier.seconds else 0.0,
                "waited_seconds": waited - self._before[0],
                "read_bytes": float(read - self._before[1]),
            },
        )

    # --- on the retrieval thread

    def _read(self) -> None:
        """Make rows of this device's documents, the same for both models, and begin."""
        if self._driver.over:
            return
        context, opening = self._context, self._context.opening
        models = [model for model in (self._target, self._drafter) if model is not None]
        # The draft model's rows may hold a tree and the one that is to follow it.
        reserve = opening.max_tokens + 1 + 2 * self._nodes
        room = min(model.room(opening, reserve) for model in models)
        documents = context.side.find(opening, room)
        found = self._target.arrange(opening, documents, (), room)
        context.record.device_titles = found.titles
        context.record.prompt_tokens += found.tokens
        racing = Racing(opening.seed, opening.temperature)
        self._target.read_trees(self._driver.verifier, opening, racing, found, reserve, self._driver.end)
        if self._drafter is not None:
            self._drafter.read_trees(self._driver.drafter, opening, Likeliest(), found, reserve, self._driver.end)


def make_growth(request: EdgeRequest, threshold: Threshold) -> Growth:
    """The rule that `request` names; `width` has as many branches as the tree's size holds."""
    match request.growth:
        case "chain":
            return Even(request.draft_length)
        case "width":
            return Even(request.draft_length, max(1, request.tree_size // request.draft_length))
        case "none":
            return Nothing()
        case _:
            return Adaptive(request.tree_size, threshold)
