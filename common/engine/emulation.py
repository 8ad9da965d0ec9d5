"""Hardware slower than this machine, for experiments."""

from __future__ import annotations

from dataclasses import dataclass

from common.estimates.estimators import DecodeLine
from common.estimates.peer_model import TYPICAL_CONTEXT


@dataclass(frozen=True, slots=True)
class MinimumTimes:
    """Emulation of slower hardware: seconds that a pass takes at least."""

    step: float  # of a decode step
    context: float = 0.0  # more per token of context
    prompt: float = 0.0  # more per token of prompts

    def seconds(self, context: int, tokens: int) -> float:
        """Duration of a pass with steps at `context` tokens (0: no steps) and `tokens` tokens of prompts."""
        return (self.step + self.context * context if context else 0.0) + self.prompt * tokens

    def line(self, measured: DecodeLine) -> DecodeLine:
        """The decode line that profiling this hardware would find; `measured` is the machine's own."""
        return DecodeLine.of(self.context, max(self.step, measured.intercept), TYPICAL_CONTEXT)
