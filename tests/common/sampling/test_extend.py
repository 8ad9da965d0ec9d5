"""Lists that grow: an honest side's answers are taken in any order, however many tokens are equally fast."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from common.sampling.certificate import RaceView
from common.sampling.race import LocalRace, RaceSampler
from proto.codes import RaceEntries
from proto.errors import ProtocolError

Told = tuple[int, RaceEntries]  # depth, 0 for values by name


@st.composite
def answers(draw: st.DrawFn) -> tuple[RaceSampler, LocalRace, list[Told]]:
    """A race over few different probabilities, and what its side tells of it: by depth and by name, in any order."""
    vocabulary = draw(st.integers(1, 24))
    levels = draw(st.sampled_from([[1.0], [1.0, 3.0], [0.0, 1.0, 2.0, 3.0], [0.0, 1e-9, 1.0]]))
    masses = draw(st.lists(st.sampled_from(levels), min_size=vocabulary, max_size=vocabulary))
    masses[draw(st.integers(0, vocabulary - 1))] = 1.0
    temperature = draw(st.sampled_from([0.0, 0.7]))
    sampler = RaceSampler(draw(st.integers(0, 99)), temperature, draw(st.integers(1, vocabulary)), vocabulary)
    local = sampler.draft(draw(st.integers(0, 9)), torch.tensor(masses) / sum(masses))
    by_depth = st.integers(1, vocabulary + 2).map(lambda depth: (depth, local.extend(depth)))
    named = st.lists(st.integers(0, vocabulary - 1), min_size=1, max_size=5).map(lambda ids: (0, local.values(ids)))
    return sampler, local, draw(st.lists(st.one_of(by_depth, named), max_size=6))


def knows(view: RaceView, local: LocalRace, sampler: RaceSampler) -> None:
    """Every token of positive speed is in the list with its speed, or no faster than the threshold."""
    vocabulary = len(local.probabilities)
    everything = RaceSampler.extend(sampler, local, 0, local.values(range(vocabulary))).speed_of
    for token, speed in everything.items():
        assert view.speed_of.get(token, speed) == speed
        assert token in view.speed_of or speed <= view.threshold
    assert view.token == local.token


class TestHonestAnswers:
    @given(answers())
    def test_are_taken_in_any_order(self, race: tuple[RaceSampler, LocalRace, list[Told]]) -> None:
        sampler, local, told = race
        view: RaceView = sampler.receive(local.position, local.entries)
        for depth, entries in told:
            view = sampler.extend(view, depth, entries)
            knows(view, local, sampler)
        depths = [depth for depth, _ in told]
        if max(depths, default=0) >= len(local.probabilities):
            assert view.threshold == 0

    @given(answers())
    def test_end_the_same_in_every_order(self, race: tuple[RaceSampler, LocalRace, list[Told]]) -> None:
        sampler, local, told = race
        views: list[RaceView] = []
        for order in (told, told[::-1], told + told):
            view: RaceView = sampler.receive(local.position, local.entries)
            for depth, entries in order:
                view = sampler.extend(view, depth, entries)
            views.append(view)
        assert len({view.threshold for view in views}) == 1
        assert all(view.speed_of == views[0].speed_of for view in views)


class TestDishonestAnswers:
    """At temperature 0 a speed is a probability: codes say it all."""

    def view(self, sampler: RaceSampler) -> RaceView:
        return sampler.receive(0, self.entries({1: 500, 2: 400, 3: 400}))

    def entries(self, codes: dict[int, int]) -> RaceEntries:
        return RaceEntries(np.array(list(codes), np.uint32), np.array(list(codes.values()), np.uint16))

    @pytest.mark.parametrize(
        ("depth", "codes"),
        [
            (0, {4: 401}),  # faster than the slowest of the list that it was not on
            (0, {1: 499}),  # another value than before
            (4, {1: 500, 2: 400, 3: 400, 4: 401}),
            (4, {1: 500, 2: 400, 4: 100, 5: 100}),  # 3 is missing
            (4, {1: 500, 2: 400}),  # nothing else is possible, they say: but 3 was
            (2, {2: 400, 3: 400}),  # 1 is faster than both
        ],
    )
    def test_are_refused(self, depth: int, codes: dict[int, int]) -> None:
        sampler = RaceSampler(1, 0.0, 3, 10)
        view = self.view(sampler)
        with pytest.raises(ProtocolError):
            sampler.extend(view, depth, self.entries(codes))

    def test_equals_beyond_the_cut_are_no_contradiction(self) -> None:
        """Lists of equally fast tokens are cut by id; a token that was named may be as fast as the last one."""
        sampler = RaceSampler(1, 0.0, 3, 10)
        view = sampler.extend(self.view(sampler), 0, self.entries({7: 400}))
        view = sampler.extend(view, 4, self.entries({1: 500, 2: 400, 3: 400, 4: 400}))
        assert view.speed_of.keys() == {1, 2, 3, 4, 7}
        view = sampler.extend(view, 2, self.entries({1: 500, 2: 400}))
        assert view.speed_of.keys() == {1, 2, 3, 4, 7}
