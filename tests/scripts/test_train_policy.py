"""Training is a function of its settings, and learns."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from common.draft_policy.ddqn import ACTIONS, STATE, WEIGHTS, Network, state_of
from common.draft_policy.times import RESOLUTIONS
from scripts.train_policy.__main__ import main
from scripts.train_policy.learner import TRAINED_ON, Replay, Stream, Training, network, recorded, train

pytestmark = pytest.mark.suite


def weights(training: Training) -> list[np.ndarray]:
    return [value.numpy() for value in train(training, lambda sentence: None).state_dict().values()]


def test_the_seed_decides() -> None:
    short = Training(steps=30, batch=16, streams=2, discount=0.5)
    first, second = weights(short), weights(short)
    other = weights(Training(steps=30, batch=16, streams=2, discount=0.5, seed=2))
    assert all(np.array_equal(one, two) for one, two in zip(first, second, strict=True))
    assert not np.array_equal(first[0], other[0])


def test_long_drafts_of_an_unsure_drafter_are_learnt_to_be_bad() -> None:
    trained = train(Training(steps=1500, batch=128), lambda sentence: None)
    arrays = [value.detach().numpy() for value in trained.state_dict().values()]
    policy = Network(tuple(zip(arrays[::2], arrays[1::2], strict=True)))
    values = policy.values(state_of([0.5] * 16, 5_000.0))
    assert ACTIONS[int(values.argmax())].length <= 4
    assert values[-1] < values.max() - 5  # 16 tokens of resolution 256 take a second of the uplink


def test_a_stream_goes_on_to_the_next_answer() -> None:
    stream = Stream(3)
    steps = [stream.step(40) for _ in range(800)]
    assert any(ended for _, ended in steps)
    assert stream.state().shape == (STATE,)
    assert np.isfinite([reward for reward, _ in steps]).all()


def test_coarser_weights_and_lattices_are_accepted_less() -> None:
    for held_out in (False, True):
        found = list(recorded(held_out).values())
        assert [each.alpha for each in found] == sorted((each.alpha for each in found), reverse=True)
        for each in found:
            means = [float(each.rounded[resolution].mean()) for resolution in RESOLUTIONS]
            assert [*means, each.alpha] == sorted([*means, each.alpha])
            assert 0.0 < each.confidences.min() < each.confidences.max() <= 1.0
            assert np.corrcoef(each.confidences, each.acceptances)[0, 1] > 0.3


def test_what_is_held_out_is_not_trained_on() -> None:
    for name, found in recorded(held_out=False).items():
        trained_on, held_out = (
            {tuple(answer) for answer in each.confidences.reshape(-1, 80)}
            for each in (found, recorded(held_out=True)[name])
        )
        assert len(trained_on) == TRAINED_ON
        assert len(held_out) == 24 - TRAINED_ON > 6
        assert trained_on.isdisjoint(held_out)


def test_the_replay_forgets_the_oldest() -> None:
    replay = Replay(4, np.random.default_rng(1))
    for number in range(6):
        replay.add(np.full(STATE, number, np.float32), number, 0.0, np.zeros(STATE, np.float32), number == 5)
    _, actions, _, _, goes_on = replay.batch(200)
    assert sorted(set(actions.tolist())) == [2, 3, 4, 5]
    assert torch.equal(goes_on == 0, actions == 5)


def test_the_network_values_every_action() -> None:
    assert network()(torch.zeros(2, STATE)).shape == (2, len(ACTIONS))


def test_the_command_writes_weights_and_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["train_policy", "--steps", "5", "--output", str(tmp_path / "w.safetensors")])
    main()
    record = json.loads((tmp_path / "w.json").read_text())
    shipped = json.loads(WEIGHTS.with_suffix(".json").read_text())
    assert record["trained_for"] == shipped["trained_for"]
    assert record["training"] == shipped["training"] | {"steps": 5}
    assert len(record["actions"]) == len(shipped["actions"])
    Network.load(tmp_path / "w.safetensors")
