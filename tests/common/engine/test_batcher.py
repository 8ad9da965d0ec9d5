"""The batcher on a virtual clock: running answers are not held up, prompts go forward, peers are treated alike."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.engine.batcher import FEWEST, SHORT, Batcher, PassTimes, due, in_order
from common.engine.model.packed import Feed
from tests.support.feeds import feed

FEEDS = st.lists(
    st.builds(feed, st.sampled_from("abc"), st.integers(1, 8), st.integers(1, 700), st.booleans()), max_size=12
)


def planned(batcher: Batcher, feeds: list[Feed], budget: int) -> dict[int, int]:
    """The tokens per row that a pass feeds of each feed, by its place among `feeds`."""
    places = {id(each): place for place, each in enumerate(feeds)}
    chosen = batcher.plan(feeds, budget)
    tokens = {places[id(each)]: len(each.tokens) for each in chosen}
    assert len(tokens) == len(chosen), "a feed has one part"
    return tokens


class TestPlan:
    @settings(max_examples=300)
    @given(st.lists(st.tuples(FEEDS, st.integers(1, 600)), max_size=6))
    def test_every_plan_is_sound(self, turns: list[tuple[list[Feed], int]]) -> None:
        batcher = Batcher()
        for feeds, budget in turns:
            steps = {place for place, each in enumerate(feeds) if due(each)}
            wanted = [list(each.tokens) for each in feeds]
            chosen = planned(batcher, feeds, budget)
            assert bool(chosen) == bool(feeds)
            assert steps <= chosen.keys()
            for place, tokens in chosen.items():
                each = feeds[place]
                assert 1 <= tokens <= len(wanted[place])
                assert list(each.tokens) == wanted[place][:tokens]
                assert each.whole == (tokens == len(wanted[place]))
                assert each.logits == int(each.whole)
                assert due(each) == (place in steps), "a part of a prompt is no step"
            spent = [feeds[place].size for place in chosen if place not in steps]
            assert sum(spent) <= budget or len(spent) == 1  # a chunk that can't be cut smaller, and nothing else

    def test_steps_come_first_whatever_the_budget(self) -> None:
        feeds = [feed("a", 4, 500, False), feed("b", 4, 1, True), feed("c", 4, SHORT, True), feed("d", 4, 90, True)]
        chosen = planned(Batcher(), feeds, 32)
        assert chosen[1] == 1
        assert chosen[2] == SHORT
        assert chosen.get(0, 0) + chosen.get(3, 0) <= 8

    def test_a_prompt_that_begins_its_answer_was_no_step(self) -> None:
        """A pass is counted after it has ended, when the answer is running."""
        prompt = feed("a", 1, 3, False)
        prompt.job.running = True  # type: ignore[misc]
        assert not due(prompt)
        assert due(feed("a", 1, 3, True))

    def test_everything_is_read_in_the_end(self) -> None:
        batcher = Batcher()
        left = {index: 100 + index for index in range(9)}
        for _ in range(200):
            order = sorted(left)
            feeds = [feed(index % 3, 1 + index % 4, left[index], False) for index in order]
            for place, tokens in planned(batcher, feeds, 64).items():
                left[order[place]] -= tokens
            left = {index: tokens for index, tokens in left.items() if tokens}
            if not left:
                return
        raise AssertionError(f"never read: {left}")

    def test_a_peer_with_many_prompts_does_not_hold_up_another(self) -> None:
        """A newcomer's 100 tokens beside 8,000 of one peer: read within twice what half of the passes' room takes."""
        batcher = Batcher()
        many, single, passes = 8_000, 100, 0
        while single:
            passes += 1
            feeds = [feed("many", 1, 1_000, False) for _ in range(8)] + [feed("single", 1, single, False)]
            for place, tokens in planned(batcher, feeds, 64).items():
                if place == 8:
                    single -= tokens
                else:
                    many -= tokens
        assert passes <= 2 * (2 * 100 / 64) + 1
        assert 8_000 - many >= 64 * (passes - 1) / 2 - 64

    def test_who_comes_and_goes_is_owed_nothing(self) -> None:
        """Counter-example to credit that piles up: an idle peer can't save for a burst."""
        batcher = Batcher()
        for _ in range(50):
            batcher.plan([feed("busy", 1, 1_000, False)], 64)
        had = Counter[int]()
        for _ in range(4):
            had.update(planned(batcher, [feed("busy", 1, 1_000, False), feed("back", 1, 1_000, False)], 128))
        assert abs(had[0] - had[1]) <= 128


@dataclass
class Machine:
    """Seconds of a pass: a step, and each token of a prompt."""

    step: float
    token: float

    def seconds(self, steps: bool, tokens: int) -> float:
        return (self.step if steps else 0.0) + self.token * tokens


def run(machine: Machine, prompts: list[int], rows: int = 1) -> tuple[list[float], list[float]]:
    """One running answer and prompts that all come at once: seconds of its passes, and until each prompt was read."""
    batcher, times = Batcher(), PassTimes(machine.step)
    left, now, passes, read = dict(enumerate(prompts)), 0.0, [], []
    for _ in range(10):
        times.observe(machine.seconds(True, 0), True, 0)
    while left:
        order = sorted(left)
        feeds = [feed("runner", 4, 1, True)] + [feed(index, rows, left[index], False) for index in order]
        tokens = 0
        for place, part in planned(batcher, feeds, times.budget(running=True)).items():
            if place:
                tokens += rows * part
                left[order[place - 1]] -= part
        seconds = machine.seconds(True, tokens)
        now += seconds
        times.observe(seconds, True, tokens)
        passes.append(seconds)
        for index in [index for index, count in left.items() if not count]:
            read.append(now)
            del left[index]
    return passes, read


class TestRunningAnswers:
    @pytest.mark.parametrize("token", [0.2e-3, 1e-3, 2e-3])
    def test_four_prompts_of_half_a_second_beside_one_answer_at_40_ms(self, token: float) -> None:
        passes, read = run(Machine(0.040, token), [int(0.5 / token)] * 4)
        assert max(passes[1:]) < 2 * 0.040, "after the first pass, which knows nothing of prompts yet"
        assert passes[0] < 4 * 0.040
        # 2 s of prompts at 0.6 of a step's time per pass, and the steps in between
        assert max(read) < 2.0 / 0.6 + 2.0 + 0.5

    def test_mutant_without_a_budget(self) -> None:
        """Whole prompts at once: what the budget is for."""
        passes, _ = run(Machine(0.040, 1e-3), [500] * 4)
        assert max(passes) < 0.1
        prompts = [feed(number, 1, 500, False) for number in range(4)]
        chosen = planned(Batcher(), [feed("runner", 4, 1, True), *prompts], 10**6)
        assert Machine(0.040, 1e-3).seconds(True, sum(chosen.values()) - chosen[0]) > 1.0

    def test_prompts_go_forward_however_slow_their_tokens(self) -> None:
        times = PassTimes(0.005)
        for _ in range(50):
            times.observe(10.0, True, 16)
        assert times.budget(running=True) == FEWEST

    @pytest.mark.parametrize("rows", [1, 2, 4, 16, 17, 64])
    def test_prompts_of_many_rows_go_forward_beside_running_answers(self, rows: int) -> None:
        """However small the budget, and whoever else waits, a newcomer does not wait until the others have ended."""
        batcher, left = Batcher(), {"one": 24, "other": 24}
        passes = 0
        while left:
            names = sorted(left)
            feeds = [feed("runner", 4, 1, True)] + [feed(name, rows, left[name], False) for name in names]
            chosen = planned(batcher, feeds, FEWEST)
            assert chosen.pop(0) == 1
            assert sum(chosen.values()) * rows <= max(FEWEST, rows)
            for place, tokens in chosen.items():
                left[names[place - 1]] -= tokens
            left = {name: tokens for name, tokens in left.items() if tokens}
            passes += 1
            assert passes <= 2 * 24 * max(1, rows / FEWEST * 2), "nothing goes forward"

    def test_alone_a_prompt_takes_larger_chunks(self) -> None:
        times = PassTimes(0.010)
        times.observe(0.010, True, 0)
        for _ in range(50):
            times.observe(0.0001 * 100, False, 100)
        assert times.budget(running=False) > 8 * times.budget(running=True) > 8 * FEWEST


class TestInOrder:
    @pytest.mark.parametrize(
        ("fed", "kept"),
        [
            ({0: 4, 1: 3, 2: 2}, [0, 1, 2]),
            ({2: 1, 1: 3, 0: 4}, [2, 1, 0]),  # its own tokens may be fed in parts
            ({0: 4, 1: 2, 2: 2}, [0, 1]),
            ({0: 4, 2: 2}, [0]),
            ({2: 2}, []),
            ({1: 1}, [1]),
        ],
    )
    def test_what_is_behind_others_waits_for_all_of_them(self, fed: dict[int, int], kept: list[int]) -> None:
        feeds = [feed("one", 1, tokens, False) for tokens in (4, 3, 2)]
        feeds[2].behind = feeds[:2]
        for place, tokens in fed.items():
            feeds[place].cut(tokens)
        assert in_order([feeds[place] for place in fed]) == [feeds[place] for place in kept]
