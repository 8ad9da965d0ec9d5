"""The device's larger model verifies trees of drafts while the cloud is away."""

from __future__ import annotations

from common.answer.driver import Driver, ModelSeat
from common.answer.request import RequestError
from common.answer.values import Commit, Work
from common.daemon.model_runtime import ModelRuntime, PromptRows
from common.methods.drafted.drafting import Drafting
from common.methods.edgellm.device import TreeDriver, TreeHistory, begin_trees
from common.methods.edgellm.growth import BestFirst
from common.methods.edgellm.method import TREE_SIZE
from common.methods.edgellm.rounds import TreeConfig, TreeRounds
from common.methods.interface import DeviceContext
from common.sampling.rejection import Warp

RELIEVED = "From token {} on, local_target decides while the cloud is away."
FAILED = "{} The draft model continues alone."


class TreeRelief:
    """Continues an answer with `local_target`, if any, while its verifier is away.

    The answer's own draft job rests, because trees have their own rows. The request's processors and the verifier's
    `cut` apply.
    """

    def __init__(
        self,
        context: DeviceContext,
        drafter: ModelRuntime,
        machine: Drafting,
        driver: Driver,
        part: ModelSeat[Work],
        cut: Warp | None,
    ) -> None:
        self._context, self._target, self._drafter = context, context.side.local_target, drafter
        self._machine, self._driver, self._part, self._cut = machine, driver, part, cut
        self._trees: TreeDriver | None = None
        self._failed = False

    @property
    def possible(self) -> bool:
        return self._target is not None and not self._failed

    def begin(self, found: PromptRows) -> None:
        """Start to decide on rows of `found` if the cloud is away. On the retrieval thread."""
        target, drafter, machine, opening = self._target, self._drafter, self._machine, self._context.opening
        with self._driver.lock:
            if target is None or self._driver.over or self._trees is not None or machine.state != "relieved":
                return
            self._part.resting = True
            history = TreeHistory.of(self._context.side)
            growth = BestFirst(TREE_SIZE, history.times, history.agreement)
            config = TreeConfig(frozenset(opening.eos), opening.max_tokens, target.decoder.streamed is not None)
            rounds = TreeRounds(config, growth, machine.decided)
            trees = TreeDriver(rounds, history, drafter.decoding, target.decoding, self)
            self._trees = trees
        self._context.note(RELIEVED.format(rounds.position))
        try:
            begin_trees(trees, target, drafter, self._context, found, TREE_SIZE, self._cut)
        except RequestError as error:  # a tree's rows need more memory
            trees.end(error)

    def end(self) -> None:
        """Stop: the answer is over or the cloud is back."""
        with self._driver.lock:
            trees, self._trees = self._trees, None
            self._part.resting = False
        if trees is not None:  # not under this lock, which is taken under theirs
            trees.end()

    # --- Observer, under the trees' lock

    def committed(self, commit: Commit) -> bool:
        with self._driver.lock:
            if commit.position != self._machine.position:
                return False  # a late verdict decided it; the trees follow other tokens
            self._driver.apply(lambda: self._machine.decide(commit.position, commit.token))
            return self._machine.state == "relieved" and not self._driver.over

    def withdrawn(self, position: int) -> None:
        raise RuntimeError("nobody takes a token of the trees back")

    def ended(self, failure: Exception | None) -> None:
        if failure is not None:
            self._context.note(FAILED.format(failure))
            self._failed = True
            self._part.resting = False
            self._driver.apply(self._machine.relief_failed)
