"""Times and agreement that answers by trees have shown so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from common.daemon.model_runtime import ModelRuntime
from common.daemon.side import SideRuntime
from common.methods.trees.machine.agreement import Agreement
from common.methods.trees.machine.times import TreeTimes


@dataclass(slots=True)
class TreeHistory:
    """Times and agreement of a device's draft model and verifier, for all of its answers.

    The draft model's thread tells of its steps, the verifier's of all else; both read without a lock.
    """

    times: TreeTimes
    agreement: Agreement = field(default_factory=Agreement)

    @classmethod
    def of(cls, side: SideRuntime) -> TreeHistory:
        """That of a device's answers."""
        return side.histories.of(cls, "", lambda: cls.expecting(side.drafter, side.local_target or side.target))

    @classmethod
    def expecting(cls, drafter: ModelRuntime | None, verifier: ModelRuntime) -> Self:
        """Before the first answer: what both models' passes took when they were loaded."""
        draft, verify = 0.0 if drafter is None else drafter.decoding.times.step, verifier.decoding.times
        # Where weights are read in every pass, computing with more tokens meanwhile takes no time, until it is seen to.
        node = verify.token if verifier.decoder.streamed is None else 0.0
        return cls(TreeTimes(draft, verify.step, node))
