"""Whole sessions at privacy `secret` follow the law of the mixture, and show the cloud nothing but tokens.

As in `test_law.py`: a vocabulary of four, two tokens, random interleavings of fixed seeds. The cloud's lists have one
token, so the device asks for longer ones now and then.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch

from common.answer.values import Send, SideDraft, View
from common.estimates.estimators import FAINT, SpeculationLimits
from common.methods.aggregate.session import Action, Session, SessionConfig
from common.sampling.coins import CoinSampler
from common.sampling.race import RaceSampler
from proto.messages import Draft, Message, Resolve, Side, Target
from tests.common.methods.aggregate.pump import run
from tests.common.methods.aggregate.test_law import (
    EVIDENCE,
    LENGTH,
    MUTANT_RUNS,
    TABLES,
    VOCABULARY,
    Always,
    as_code,
    law,
    p_value,
)
from tests.support.looking_up import settled

RUNS = 2_500
LISTED = 1
CONFIG = SessionConfig(1, "device", frozenset({VOCABULARY}), LENGTH, VOCABULARY)
MIXTURES = {key: torch.from_numpy(table.astype("float32")) for key, table in TABLES.items()}


class Answering(Session):
    """A session whose look-ups are carried out at once."""

    def received(self, message: Message) -> list[Action]:
        return settled(self, super().received(message))


class Game:
    """One device with coins after another, and what each sent."""

    def __init__(self, session: type[Answering] = Answering, coins: type[CoinSampler] = CoinSampler) -> None:
        self.session = session
        self.order = random.Random(17)
        self.device = coins(1.0, LISTED, VOCABULARY, coin=random.Random(3).random)
        self.cloud = RaceSampler(0, 0.0, LISTED, VOCABULARY)
        self.sent: list[Message] = []

    def predict(self, side: Side, position: int, prefix: Sequence[int]) -> tuple[View, float]:
        sampler = self.device if side == "device" else self.cloud
        return sampler.draft(position, MIXTURES[side, tuple(prefix)]), EVIDENCE[side]

    def over_there(self) -> Session:
        return Answering("cloud", CONFIG, self.cloud, Always("device"), SpeculationLimits(3, 4, FAINT, 4))

    def answer(self) -> tuple[int, ...]:
        return run(self.start(), self.over_there(), self.predict, self.order)

    def interrupted(self) -> tuple[int, ...]:
        """An answer whose cloud is a new one after the first token, and slow to answer."""
        device, cloud = self.start(), self.over_there()
        run(device, self.over_there(), self.predict, self.order, until=1)
        sent = device.rejoined()
        while True:
            try:
                return run(device, cloud, self.predict, self.order, sent)
            except AssertionError:  # a question came before the draft that it is about
                sent = device.stalled()

    def start(self) -> Session:
        sent = self.sent

        class Watched(self.session):  # type: ignore[misc, name-defined]
            def drafted(self, draft: SideDraft) -> list[Action]:
                return watched(super().drafted(draft))

            def received(self, message: Message) -> list[Action]:
                return watched(super().received(message))

        def watched(actions: list[Action]) -> list[Action]:
            sent.extend(action.message for action in actions if isinstance(action, Send))
            return actions

        device: Session = Watched("device", CONFIG, self.device, Always("device"), SpeculationLimits())
        return device

    def p_value(self, runs: int) -> float:
        return p_value(Counter(self.answer() for _ in range(runs)), law(as_code))


@pytest.mark.timeout(400)
class TestLaw:
    def test_of_answers(self) -> None:
        game = Game()
        assert game.p_value(RUNS) > 1e-4
        questions = [each for each in game.sent if isinstance(each, Resolve)]
        assert questions
        assert not any(each.ids for each in questions)
        assert {type(each) for each in game.sent} == {Target, Resolve}

    def test_of_answers_of_several_clouds(self) -> None:
        """Lists and answers of the first one are lost; its questions are asked again."""
        game = Game()
        counts = Counter(game.interrupted() for _ in range(RUNS // 2))
        assert p_value(counts, law(as_code)) > 1e-4

    def test_of_degraded_answers(self) -> None:
        """Without the cloud the device's own law decides, by coins too: the cloud may see the tokens later."""
        game, counts = Game(), Counter[tuple[int, ...]]()
        for _ in range(RUNS // 2):
            device = game.start()
            device.out_of_patience()
            while device.work is not None:
                ((position, digest),) = device.work.prefixes
                view, evidence = game.predict("device", position, device.committed)
                device.drafted(SideDraft(view, evidence, position=position, digest=digest))
            counts[device.committed] += 1
        alone: dict[tuple[int, ...], float] = {
            (first, second): TABLES["device", ()][first] * TABLES["device", (first,)][second]
            for first in range(VOCABULARY)
            for second in range(VOCABULARY)
        }
        assert p_value(counts, alone) > 1e-4


class EtaOfTheWrongSide(Answering):
    def drafted(self, draft: SideDraft) -> list[Action]:
        return super().drafted(replace(draft, evidence=-draft.evidence + sum(EVIDENCE.values())))


class Stale(Answering):
    def _on_draft(self, message: Draft) -> list[Action]:
        if message.position == self.position:
            message = replace(message, digest=self.digest(self.position))
        return super()._on_draft(message)


class ListIsAll(CoinSampler):
    """Takes the cloud's list for all of its tokens."""

    def _begin(self, *arguments):  # type: ignore[no-untyped-def]
        self._exact = False
        return super()._begin(*arguments)


class TestMutants:
    @pytest.mark.parametrize(
        "game",
        [
            lambda: Game(EtaOfTheWrongSide),
            lambda: Game(Stale),
            lambda: Game(coins=ListIsAll),
        ],
    )
    def test_is_caught(self, game: Callable[[], Game]) -> None:
        assert game().p_value(2 * MUTANT_RUNS) < 1e-9

    def test_is_caught_because_of_the_mutation(self) -> None:
        assert Game().p_value(2 * MUTANT_RUNS) > 1e-4
