"""The shipped network: what its record says of it, and weights that are not accepted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from common.draft_policy.ddqn import ACTIONS, MOST_BYTES, SHAPES, STATE, WEIGHTS, DoubleQ, Network, state_of
from common.draft_policy.policy import FixedPlan
from common.draft_policy.times import DraftPlan, RoundTimes
from scripts.simulation.rounds import Steady, TwoStateRate
from scripts.train_policy.learner import network, scenario
from tests.scripts.simulation.whole_answers import simulate_rounds

TIMES = RoundTimes(draft=0.005, verify=0.032)
RECORD = json.loads(WEIGHTS.with_suffix(".json").read_text("utf-8"))


def test_actions_are_those_of_the_record() -> None:
    policy = DoubleQ()
    told = [(row["confidence"], row["bytes_per_second"], row["length"], row["resolution"]) for row in RECORD["actions"]]
    assert len({(length, resolution) for *_, length, resolution in told}) > 2, "it decides nothing"
    for confidence, rate, length, resolution in told:
        assert policy.plan([confidence] * 16, TIMES.at_rate(rate)) == DraftPlan(length, resolution)


def test_surer_drafters_on_faster_links_draft_no_less() -> None:
    lengths = {(row["confidence"], row["bytes_per_second"]): row["length"] for row in RECORD["actions"]}
    confidences = sorted({confidence for confidence, _ in lengths})
    slow, fast = sorted({rate for _, rate in lengths})
    assert lengths[confidences[-1], slow] > lengths[confidences[0], slow]
    assert lengths[confidences[-1], fast] > lengths[confidences[0], fast]
    assert lengths[0.9, fast] > lengths[0.9, slow]


def test_it_reaches_what_was_measured() -> None:
    """Near the best fixed plan of this link, 5 tokens at resolution 16; the answers are none of the training's."""
    one, reached = scenario(Steady(0.9), TwoStateRate(0.1, 0.1), 800), []
    for policy in (DoubleQ(), FixedPlan(5, 16)):
        estimates = one.estimates()
        answers = [simulate_rounds(one, policy, seed, estimates) for seed in range(1_000_000, 1_000_004)]
        reached.append(sum(answer.tokens for answer in answers) / sum(answer.seconds for answer in answers))
    assert reached == pytest.approx([61.09, 62.95], rel=0.01)  # on another machine a near-tie of Q may fall otherwise


def test_every_action_once() -> None:
    assert len(set(ACTIONS)) == len(ACTIONS) == 16 * 5


def test_the_layers_are_those_of_the_trainer() -> None:
    layers = network()
    layers.load_state_dict({name: torch.from_numpy(array) for name, array in load_file(WEIGHTS).items()})
    state = np.random.default_rng(1).random(STATE).astype(np.float32)
    values = layers(torch.from_numpy(state)).detach().numpy()
    assert np.allclose(Network.load().values(state), values, atol=1e-4)


class TestState:
    def test_latest_first_and_the_rest_unknown(self) -> None:
        state = state_of([0.1, 0.9], 15_811.0)
        assert state[:3] == pytest.approx([0.9, 0.1, 0.5])
        assert state[-1] == 0.0
        assert state.shape == (STATE,)

    def test_only_the_last_confidences_count(self) -> None:
        assert np.array_equal(state_of([0.0] * 5 + [0.7] * 16, 1e4), state_of([0.7] * 16, 1e4))

    def test_rates_are_bounded(self) -> None:
        assert state_of([], float("inf"))[-1] == state_of([], 1e12)[-1] == 2.0
        assert state_of([], 1e-12)[-1] == -2.0


class TestBadWeights:
    @staticmethod
    def arrays() -> dict[str, np.ndarray]:
        return {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}

    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="could not be read"):
            Network.load(tmp_path / "none")

    def test_no_safetensors(self, tmp_path: Path) -> None:
        (tmp_path / "w").write_bytes(b"\0" * 100)
        with pytest.raises(ValueError, match="could not be read"):
            Network.load(tmp_path / "w")

    def test_too_large(self, tmp_path: Path) -> None:
        (tmp_path / "w").write_bytes(b"\0" * (MOST_BYTES + 1))
        with pytest.raises(ValueError, match="at most"):
            Network.load(tmp_path / "w")

    def test_other_arrays(self, tmp_path: Path) -> None:
        save_file(self.arrays() | {"0.bias": np.zeros(3, np.float32)}, tmp_path / "w")
        with pytest.raises(ValueError, match="and a policy has"):
            Network.load(tmp_path / "w")

    @pytest.mark.parametrize("bias", [np.zeros(32), np.full(32, np.nan, np.float32)])
    def test_other_numbers(self, tmp_path: Path, bias: np.ndarray) -> None:
        save_file(self.arrays() | {"0.bias": bias}, tmp_path / "w")
        with pytest.raises(ValueError, match="finite float32"):
            Network.load(tmp_path / "w")

    def test_zeros_take_the_first_action(self, tmp_path: Path) -> None:
        save_file(self.arrays(), tmp_path / "w")
        assert DoubleQ(Network.load(tmp_path / "w")).plan([], TIMES) == ACTIONS[0]
