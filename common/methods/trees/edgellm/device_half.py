"""The device's half, which makes the answer: documents, a draft model, and a model that verifies."""

from __future__ import annotations

from common.answer.attribution import of_one_process
from common.answer.driver import Preview
from common.answer.errors import RequestError
from common.answer.report import MethodReport, SideReport
from common.daemon.prompt_rows import Document
from common.methods.interface import DeviceContext
from common.methods.passages.gathering import Gathering
from common.methods.trees.beginning import begin_trees, drafter_reserve, verifier_reserve
from common.methods.trees.driver import TreeDriver
from common.methods.trees.edgellm.method import EdgeRequest
from common.methods.trees.history import TreeHistory
from common.methods.trees.machine.best_first import BestFirst
from common.methods.trees.machine.growth import Adaptive, Even, Growth, Nothing
from common.methods.trees.machine.rounds import TreeConfig, TreeRounds
from common.methods.trees.machine.threshold import Threshold
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
        rooms = [self._target.room(opening, verifier_reserve(opening, self._nodes))]
        if self._drafter is not None:
            rooms.append(self._drafter.room(opening, drafter_reserve(opening, self._nodes)))
        self._room = max(0, min(rooms))
        # A target in memory never waits, and two models that compute at once slow each other down.
        ahead = request.ahead and self._target.decoder.streamed is not None
        config = TreeConfig(frozenset(opening.eos), opening.max_tokens, ahead)
        self._rounds = TreeRounds(config, make_growth(request, TreeHistory.of(side)))
        self._driver = TreeDriver(
            self._rounds,
            TreeHistory.of(side),
            None if self._drafter is None else self._drafter.decoding,
            self._target.decoding,
            context,
            context.trace("device", alone=True),
            Preview(lambda: self._rounds.provisional, context.provisional) if request.provisional else None,
        )
        self._gathering: Gathering | None = None  # of the cloud's documents, too
        if request.sources == "both":
            self._gathering = Gathering(context, "text", self._room, lambda: self._driver.over, self._found, self.end)
        self._before = self._spent()

    # --- DeviceHalf

    @property
    def over(self) -> bool:
        return self._driver.over

    @property
    def waiting(self) -> bool:
        return self._gathering is not None and self._gathering.waiting

    @property
    def away(self) -> bool:
        return True

    def start(self, absence: str | None) -> None:
        if self._gathering is None:
            self._context.side.later(self._search, self.end)
        else:
            self._gathering.start(absence)

    def receive(self, message: Message) -> None:
        if self._gathering is not None:
            self._gathering.receive(message)

    def without_cloud(self, sentence: str) -> None:
        if self._gathering is not None:
            self._gathering.without_cloud(sentence)

    def reconnected(self) -> None:
        if self._gathering is not None:
            self._gathering.reconnected()

    def tick(self, now: float) -> None:
        if self._gathering is not None:
            self._gathering.tick(now)

    def end(self, failure: Exception | None) -> None:
        self._driver.end(failure)

    def report(self, closed: Closed | None) -> MethodReport:
        counters, drafter, verifier = self._rounds.counters, self._driver.drafter, self._driver.verifier
        waited, read = self._spent()
        passes = max(counters.rounds, 1)
        shares = of_one_process(self._context.record, self._driver.record.shares).shares
        return MethodReport(
            device=SideReport(
                drafted=counters.drafted,
                accepted=counters.accepted,
                rollbacks=counters.rejected,
                preempted=drafter.preempted + verifier.preempted,
                decode_ms=drafter.step_ms,
            ),
            attribution=shares if self._driver.record.apart else (),
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
        """Seconds that the target has waited for layers so far, and bytes that it has read."""
        streamed = self._target.decoder.streamed
        return (0.0, 0) if streamed is None else (streamed.counters.waited, streamed.read.bytes)

    # --- on the retrieval thread

    def _search(self) -> None:
        if not self._driver.over:
            self._found(self._context.side.find(self._context.opening, self._context.scope, self._room), [])

    def _found(self, own: list[Document], fetched: list[Document]) -> None:
        """Make rows of the documents, the same for both models, and begin."""
        context, opening, driver = self._context, self._context.opening, self._driver
        found = self._target.arrange(opening, own, fetched, self._room)
        found.note(context.record)
        context.reread(found.apart, driver.record)
        begin_trees(driver, self._target, self._drafter, opening, found, self._nodes, context.record)


def make_growth(request: EdgeRequest, history: TreeHistory) -> Growth:
    """The rule that `request` names; `width` has as many branches as the tree's size holds."""
    match request.growth:
        case "chain":
            return Even(request.draft_length)
        case "width":
            return Even(request.draft_length, max(1, request.tree_size // request.draft_length))
        case "none":
            return Nothing()
        case "adaptive":
            return Adaptive(request.tree_size, Threshold(request.threshold))
        case _:
            return BestFirst(request.tree_size, history.times, history.agreement)
