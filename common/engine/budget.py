"""Bounds the tokens of prompts that a pass may feed beside the steps of running answers. Pure."""

from __future__ import annotations

from typing import Final

STRETCH: Final = 0.6  # a pass with running answers takes this share of a step longer, at most
ALONE_STEPS: Final = 8.0  # steps that a pass may take while nobody's answer is running
FEWEST: Final = 16  # tokens; prompts go forward however fast the steps are
MOST: Final = 2048
_NEW: Final = 0.2  # weight of a new measurement
_UNMEASURED_RATIO: Final = 20.0  # tokens of a prompt that take as long as a step, before any was measured


class PassTimes:
    """Seconds of a step, and of a prompt's token beside it, as passes have shown. Starts from a profiled step."""

    def __init__(self, step: float) -> None:
        """`step` is in seconds, above 0."""
        self.step = step
        self.token = step / _UNMEASURED_RATIO
        self.row = step / _UNMEASURED_RATIO  # that a further token of a running answer adds, in one of its rows

    def observe(self, seconds: float, steps: bool, tokens: int, further: int = 0) -> None:
        """A pass took `seconds`; it had single `steps` or none, `tokens` tokens of prompts, and `further` tokens of
        running answers beside the first of each of their rows.
        """
        if seconds <= 0:
            return
        if not tokens:
            if further:
                self.row += _NEW * (max(seconds - self.step, 0.0) / further - self.row)
            elif steps:
                self.step += _NEW * (seconds - self.step)
            return
        beside = max(seconds - (self.step if steps else 0.0), 0.0)
        self.token += _NEW * (beside / tokens - self.token)

    def budget(self, running: bool) -> int:
        """Tokens of prompts for the next pass; `running`: some answer is under way."""
        seconds = self.step * (STRETCH if running else ALONE_STEPS)
        if self.token <= 0:
            return MOST
        return max(FEWEST, min(MOST, int(seconds / self.token)))
