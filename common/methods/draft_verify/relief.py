"""The device's larger model in the cloud's place: it verifies trees of drafts while the cloud is away (EdgeLLM)."""

from __future__ import annotations

from common.methods.draft_verify.driver import RoundsDriver
from common.methods.edgellm.beginning import begin_trees
from common.methods.edgellm.driver import TreeDriver
from common.methods.edgellm.method import TREE_SIZE
from common.methods.interface import DeviceContext
from common.rounds.drafting import Drafting
from common.runtime.model_runtime import ModelRuntime
from common.runtime.reading import PromptRows
from common.session.values import Commit
from common.trees.best_first import BestFirst
from common.trees.rounds import TreeConfig, TreeRounds

RELIEVED = "From token {} on local_target decides, as long as the cloud takes no part."
FAILED = "{} The draft model goes on alone."


class Relief:
    """Goes on with an answer whose verifier is away, by `local_target`. Without such a model nothing happens here.

    The answer's own draft job rests meanwhile: trees have rows of their own.
    """

    def __init__(self, context: DeviceContext, drafter: ModelRuntime, machine: Drafting, driver: RoundsDriver) -> None:
        self._context, self._target, self._drafter = context, context.side.local_target, drafter
        self._machine, self._driver = machine, driver
        self._trees: TreeDriver | None = None
        self._failed = False

    @property
    def possible(self) -> bool:
        return self._target is not None and not self._failed

    def begin(self, found: PromptRows) -> None:
        """Decide behind the rows that the draft model reads, if the cloud is away now. On the retrieval thread."""
        target, drafter, machine, opening = self._target, self._drafter, self._machine, self._context.opening
        with self._driver.lock:
            if target is None or self._driver.over or self._trees is not None or not machine.relieved:
                return
            self._driver.resting = True
            history = self._context.side.trees
            growth = BestFirst(TREE_SIZE, history.times, history.agreement)
            config = TreeConfig(frozenset(opening.eos), opening.max_tokens, target.decoder.streamed is not None)
            rounds = TreeRounds(config, growth, machine.decided)
            trees = TreeDriver(rounds, history, drafter.decoding, target.decoding, self._committed, None, self._ended)
            self._trees = trees
        self._context.note(RELIEVED.format(rounds.position))
        begin_trees(trees, target, drafter, opening, found, TREE_SIZE)

    def end(self) -> None:
        """Decide no more: the answer is over, or the cloud is back."""
        with self._driver.lock:
            trees, self._trees = self._trees, None
            self._driver.resting = False
        if trees is not None:  # not under the lock, which is taken under theirs
            trees.end()

    # --- under the trees' lock

    def _committed(self, commit: Commit) -> bool:
        self._driver.apply(lambda: self._machine.decide(commit.position, commit.token))
        return self._machine.relieved and not self._driver.over

    def _ended(self, failure: Exception | None) -> None:
        if failure is not None:
            self._context.note(FAILED.format(failure))
            self._failed = True
            self._driver.resting = False
            self._driver.apply(self._machine.relief_failed)
