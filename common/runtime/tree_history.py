"""What answers by trees have shown so far."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Self

from common.runtime.model_runtime import ModelRuntime
from common.trees.agreement import Agreement
from common.trees.times import TreeTimes


@dataclass(slots=True)
class TreeHistory:
    """Times and agreement of a device's draft model and verifier, for all of its answers. Use it under `lock`."""

    times: TreeTimes
    agreement: Agreement = field(default_factory=Agreement)
    lock: threading.RLock = field(default_factory=threading.RLock)

    @classmethod
    def expecting(cls, drafter: ModelRuntime | None, verifier: ModelRuntime) -> Self:
        """Before the first answer: what both models' passes took when they were loaded."""
        draft, verify = 0.0 if drafter is None else drafter.decoding.times.step, verifier.decoding.times
        # Where weights are read in every pass, computing with more tokens meanwhile takes no time, until it is seen to.
        node = verify.token if verifier.decoder.streamed is None else 0.0
        return cls(TreeTimes(draft, verify.step, node))
