"""Bounds what a pass may feed beside the steps of running answers, and beyond equal parts of these. Pure."""

from __future__ import annotations

from typing import Final

STRETCH: Final = 0.6  # a pass with running answers takes this share of a step longer, at most
ALONE_STEPS: Final = 8.0  # steps that a pass may take while nobody's answer is running
FEWEST: Final = 16  # tokens; prompts go forward however fast the steps are
MOST: Final = 2048
_NEW: Final = 0.2  # weight of a new measurement
_NEW_STEP: Final = 0.05  # of a pass in the line of passes over their steps
_REMEMBERED: Final = 64  # passes for which what a further token took is remembered
_FORGOTTEN: Final = 0.02  # weight, from then on, of what is believed of one before any
_ALIKE: Final = 1.0  # variance of their tokens below which passes tell nothing of what a token takes
_FREE: Final = 0.1  # share of a pass that steps beyond equal parts of all peers may take longer
_UNMEASURED_RATIO: Final = 20.0  # tokens of a prompt that take as long as a step, before any was measured


class PassTimes:
    """Seconds of a step, and of a prompt's token beside it, as passes have shown. Starts from a profiled step."""

    def __init__(self, step: float) -> None:
        """`step` is in seconds, above 0."""
        self.step = step
        self.token = step / _UNMEASURED_RATIO
        self.row = step / _UNMEASURED_RATIO  # that a further token of a running answer adds, in one of its rows
        self._single = 0  # passes without one, since the last that had
        self._line = _StepLine()

    def observe(self, seconds: float, steps: bool, tokens: int, further: int = 0, stepped: int = 0) -> None:
        """A pass took `seconds`; it had single `steps` or none, `tokens` tokens of prompts, and `further` tokens of
        running answers beside the first of each of their rows. `stepped` are the tokens of all steps, in all rows.
        """
        if seconds <= 0:
            return
        if stepped and not tokens:
            self._line.observe(stepped, seconds)
        if not tokens:
            if further:
                # A row that takes as long as a step is worth nothing, and one that took longer did by accident.
                self.row += _NEW * (min(max(seconds - self.step, 0.0) / further, self.step) - self.row)
                self._single = 0
            elif steps:
                self.step += _NEW * (seconds - self.step)
                self._single += 1
                if self._single > _REMEMBERED:  # rows that are taken to be dear are not decoded, nor so corrected
                    self.row += _FORGOTTEN * (self.step / _UNMEASURED_RATIO - self.row)
            return
        beside = max(seconds - (self.step if steps else 0.0), 0.0)
        self.token += _NEW * (beside / tokens - self.token)

    def budget(self, running: bool) -> int:
        """Tokens of prompts for the next pass; `running`: some answer is under way."""
        seconds = self.step * (STRETCH if running else ALONE_STEPS)
        if self.token <= 0:
            return MOST
        return max(FEWEST, min(MOST, int(seconds / self.token)))

    def spare(self, stepped: int) -> int:
        """Tokens of steps that a pass with `stepped` of them takes at next to no cost. Implements `Costs`."""
        return self._line.spare(stepped)

    def seconds(self, stepped: int, tokens: int) -> float:
        """Seconds of a pass with `stepped` tokens of steps and `tokens` of prompts, beyond one that feeds nothing."""
        return self._line.slope * stepped + self.token * tokens


class _StepLine:
    """Seconds of passes over the tokens of their steps, in all rows: least squares that forget."""

    def __init__(self) -> None:
        self._tokens = self._seconds = self._variance = self._covariance = 0.0

    @property
    def slope(self) -> float:
        """Seconds of a token more. Where all passes were alike nothing is known: as if it took as long as any other."""
        if not self._tokens:
            return 0.0
        if self._variance <= _ALIKE:
            return self._seconds / self._tokens
        return max(self._covariance / self._variance, 0.0)

    def observe(self, tokens: int, seconds: float) -> None:
        """Note a pass."""
        if not self._tokens:
            self._tokens, self._seconds = float(tokens), seconds
            return
        more, longer = tokens - self._tokens, seconds - self._seconds
        self._tokens += _NEW_STEP * more
        self._seconds += _NEW_STEP * longer
        self._variance = (1 - _NEW_STEP) * (self._variance + _NEW_STEP * more * more)
        self._covariance = (1 - _NEW_STEP) * (self._covariance + _NEW_STEP * more * longer)

    def spare(self, tokens: int) -> int:
        """The tokens that make a pass of `tokens` longer by a share of `_FREE`, at most `MOST`."""
        slope = self.slope
        whole = max(self._seconds + slope * (tokens - self._tokens), slope * tokens)
        if not self._tokens:
            return 0
        return MOST if slope * MOST <= _FREE * whole else int(_FREE * whole / slope)
