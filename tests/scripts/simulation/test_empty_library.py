"""A side without documents has no weight, so nobody waits for it: the answer takes as long as the other side alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from common.estimates.estimators import SpeculationLimits
from proto.messages import Draft, Message, Sampler, Side
from scripts.simulation.world import Fate, Network, World
from tests.common.methods.aggregate.table_model import TableModel
from tests.scripts.simulation.worlds import SETTINGS, Setting, build, one_process

VOCABULARY = 12
ONE_WAY = 0.1  # seconds
STEP: dict[Side, float] = {"device": 0.02, "cloud": 0.01}
LENGTH = 40
NOTHING: frozenset[Side] = frozenset()
EMPTY: dict[str, frozenset[Side]] = {
    "cloud": frozenset({"cloud"}),
    "device": frozenset({"device"}),
    "both": frozenset({"device", "cloud"}),
}


def answered(
    setting: Setting, model: TableModel, sampler: Sampler, alone: Side | None, step: dict[Side, float] = STEP
) -> World:
    generator = np.random.default_rng(3)
    network = Network(lambda sender: Fate((ONE_WAY,)))
    participants: frozenset[Side] = frozenset({"device", "cloud"}) if alone is None else frozenset({alone})
    world = build(
        setting,
        model,
        9,
        1.0,
        4,
        LENGTH,
        network,
        generator,
        SpeculationLimits(32),
        sampler=sampler,
        participants=participants,
    )
    world.device.decode_seconds = lambda position: step["device"]
    world.cloud.decode_seconds = lambda position: step["cloud"]
    assert world.run(until=600), "the answer never ended"
    assert not world.device.session.counters.degraded
    assert not world.device.session.counters.disagreements
    return world


def seconds(world: World) -> float:
    assert world.device.finished_at is not None
    return world.device.finished_at


@pytest.mark.parametrize("empty", EMPTY)
@pytest.mark.parametrize("name", SETTINGS)
class TestEmptyLibrary:
    def test_the_answer_is_the_one_that_it_was(self, name: str, empty: str) -> None:
        for seed in range(8):
            model = TableModel(VOCABULARY, seed, disagreement=0.9, end=0.0, empty=EMPTY[empty])
            world = answered(SETTINGS[name], model, "race", None)
            assert list(world.device.session.committed) == one_process(model, 9, 1.0, LENGTH)

    @pytest.mark.parametrize("sampler", ["race", "paper"])
    def test_it_is_the_other_side_alone_and_as_fast(self, name: str, empty: str, sampler: Sampler) -> None:
        """The alone side's draft is the target: the law of its own distribution, with either sampler."""
        if sampler == "paper" and name == "mirrored":
            pytest.skip("only with the race both sides find the same token")
        decides: Side = "cloud" if empty == "device" else "device"
        model = TableModel(VOCABULARY, 4, disagreement=0.9, end=0.0, empty=EMPTY[empty])
        alone = answered(SETTINGS[decides], model, sampler, decides)
        world = answered(SETTINGS[name], model, sampler, None)
        assert world.device.session.committed == alone.device.session.committed
        # Nobody can know of it before the first message of the empty side is there. Moving the role takes a way, too.
        moves = world.device.session.counters.switches
        assert seconds(world) < seconds(alone) + (2 + moves) * ONE_WAY + 0.1

    def test_the_empty_side_slows_nobody_down(self, name: str, empty: str) -> None:
        """Slow steps of the empty side cost nothing, except one that the cloud must wait for where it decides."""
        lagging: Side = "device" if empty == "device" else "cloud"
        slow: dict[Side, float] = {**STEP, lagging: 1.0}
        model = TableModel(VOCABULARY, 4, disagreement=0.9, end=0.0, empty=EMPTY[empty])
        world = answered(SETTINGS[name], model, "race", None, slow)
        usual = answered(SETTINGS[name], model, "race", None)
        assert seconds(world) < seconds(usual) + 2.2

    def test_no_drafts_of_it_travel_in_vain(self, name: str, empty: str) -> None:
        model = TableModel(VOCABULARY, 4, disagreement=0.9, end=0.0, empty=EMPTY[empty])
        world = answered(SETTINGS[name], model, "race", None)
        if empty == "device":
            assert world.device.session.counters.drafted <= 1
        else:
            assert world.cloud.session.counters.drafted == 0
            assert world.down.sent == 1  # `Ready`


class TestFullLibraries:
    """The counter-example: what the tests above have to notice."""

    @pytest.mark.parametrize("name", SETTINGS)
    def test_a_side_with_documents_is_waited_for(self, name: str) -> None:
        model = TableModel(VOCABULARY, 4, disagreement=0.9, end=0.0)
        alone = answered(SETTINGS["device"], model, "race", "device")
        world = answered(SETTINGS[name], model, "race", None)
        assert seconds(world) > seconds(alone) + 2 * ONE_WAY + 0.1


def test_a_lost_first_draft_is_made_good() -> None:
    """The cloud learns of the empty device by a draft; the one that told it may be lost."""
    model = TableModel(VOCABULARY, 4, disagreement=0.9, end=0.0, empty=EMPTY["device"])
    generator = np.random.default_rng(3)
    for name in ("cloud", "migrating"):
        world = build(
            SETTINGS[name],
            model,
            9,
            1.0,
            4,
            LENGTH,
            Network(lambda sender: Fate((ONE_WAY,))),
            generator,
            SpeculationLimits(32),
        )
        world.device.send = losing_a_draft(world.device.send)
        assert world.run(until=60), name
        assert world.device.session.counters.drafted > 1  # it told again
        assert list(world.device.session.committed) == one_process(model, 9, 1.0, LENGTH)


def losing_a_draft(send: Callable[[Message], None]) -> Callable[[Message], None]:
    lost: list[Message] = []

    def lossy(message: Message) -> None:
        if isinstance(message, Draft) and not lost:
            lost.append(message)
        else:
            send(message)

    return lossy
