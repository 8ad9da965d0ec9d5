"""The learned policy of quantize-sample-verify (its section IV-C): a small network.

Trained in the simulator by double Q-learning for the times in `ddqn.json`; otherwise use `goodput`. The weights are
size-checked arrays in a safetensors file, without code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load

from common.draft_policy.policy import ConfidenceAcceptance
from common.draft_policy.times import MOST_LENGTH, RESOLUTIONS, DraftPlan, Extension, Learner, RoundOutcome, RoundTimes

WEIGHTS: Final = Path(__file__).with_name("ddqn.safetensors")
REMEMBERED: Final = 16  # confidences of the state
ACTIONS: Final = tuple(
    DraftPlan(length, resolution) for length in range(1, MOST_LENGTH + 1) for resolution in RESOLUTIONS
)
STATE: Final = REMEMBERED + 1
HIDDEN: Final = 32
SHAPES: Final = {
    "0.weight": (HIDDEN, STATE),
    "0.bias": (HIDDEN,),
    "2.weight": (HIDDEN, HIDDEN),
    "2.bias": (HIDDEN,),
    "4.weight": (len(ACTIONS), HIDDEN),
    "4.bias": (len(ACTIONS),),
}  # three linear layers, ReLU between them
MOST_BYTES: Final = 65_536  # of the file
UNKNOWN: Final = 0.5  # at missing positions
MIDDLE_RATE: Final = 15_811.0  # bytes per second: between 40 and 400 kb/s, the state's 0
WIDEST: Final = 2.0  # of its logarithm, to base 10


@dataclass(frozen=True, slots=True)
class Network:
    """Q of every action: `layers` are weights `[out, in]` and biases `[out]`."""

    layers: tuple[tuple[NDArray[np.float32], NDArray[np.float32]], ...]

    @classmethod
    def load(cls, path: Path = WEIGHTS) -> Network:
        """Raises `ValueError` for a missing or large file, or arrays other than `SHAPES`."""
        try:
            size = path.stat().st_size
            if size > MOST_BYTES:
                raise ValueError(f"{path} has {size} bytes; a policy's weights have at most {MOST_BYTES}")
            arrays = load(path.read_bytes())
        except (OSError, SafetensorError) as error:
            raise ValueError(f"{path} could not be read as a policy's weights: {error}") from error
        found = {name: array.shape for name, array in arrays.items()}
        if found != SHAPES:
            raise ValueError(f"{path} has the arrays {found}, and a policy has {SHAPES}; train it again")
        if not all(array.dtype == np.float32 and np.isfinite(array).all() for array in arrays.values()):
            raise ValueError(f"{path} has weights that are not finite float32 numbers; train it again")
        return cls(tuple((arrays[f"{layer}.weight"], arrays[f"{layer}.bias"]) for layer in (0, 2, 4)))

    def values(self, state: NDArray[np.float32]) -> NDArray[np.float32]:
        """Q `[actions]` in a state `[STATE]`."""
        hidden = state
        for weight, bias in self.layers[:-1]:
            hidden = np.maximum(weight @ hidden + bias, np.float32(0.0))
        weight, bias = self.layers[-1]
        return weight @ hidden + bias


def state_of(confidences: Sequence[float], up_rate: float) -> NDArray[np.float32]:
    """`[STATE]`: confidences, latest first, and log uplink rate (bytes per second)."""
    latest = list(confidences[-REMEMBERED:])[::-1]
    state = np.full(STATE, UNKNOWN, np.float32)
    state[: len(latest)] = latest
    state[-1] = min(WIDEST, max(-WIDEST, math.log10(up_rate / MIDDLE_RATE))) if up_rate < math.inf else WIDEST
    return state


class DoubleQ:
    """The first action with the largest Q.

    In training, confidences were acceptance probabilities. Real drafters differ, so it gets the accepted share at a
    confidence (ours), initially the confidence.
    """

    def __init__(self, network: Network | None = None, acceptance: ConfidenceAcceptance | None = None) -> None:
        """`acceptance` may come from earlier answers."""
        self._network = network or Network.load()
        self._acceptance = acceptance or ConfidenceAcceptance()

    @property
    def taught(self) -> Sequence[Learner]:
        return (self._acceptance,)

    def plan(self, confidences: Sequence[float], times: RoundTimes) -> DraftPlan:
        told = [self._acceptance.of(confidence, confidence) for confidence in confidences]
        return ACTIONS[int(np.argmax(self._network.values(state_of(told, times.up_rate))))]

    def extension(self, confidence: float, drafted: int) -> Extension:
        return "more"

    def observe(self, outcome: RoundOutcome) -> None:
        """The network stays fixed."""
        self._acceptance.observe(outcome)
