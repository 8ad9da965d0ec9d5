"""The batcher on a virtual clock: running answers are not held up, prompts go forward, peers are treated alike."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from common.engine.batcher import FEWEST, SHORT, Batcher, PassTimes, Share, Wish
from common.engine.jobs import Feed
from common.engine.kv.memory import Chunk, Layout, Rows
from common.engine.loop import in_order

WISHES = st.lists(
    st.builds(Wish, st.sampled_from("abc"), st.integers(1, 8), st.integers(1, 700), st.booleans()), max_size=12
)


class TestPlan:
    @settings(max_examples=300)
    @given(st.lists(st.tuples(WISHES, st.integers(1, 600)), max_size=6))
    def test_every_plan_is_sound(self, turns: list[tuple[list[Wish], int]]) -> None:
        batcher = Batcher()
        for wishes, budget in turns:
            shares = batcher.plan(wishes, budget)
            assert bool(shares) == bool(wishes)
            assert len({share.wish for share in shares}) == len(shares)
            due = {index for index, wish in enumerate(wishes) if wish.due}
            assert due <= {share.wish for share in shares}
            for share in shares:
                assert 1 <= share.tokens <= wishes[share.wish].tokens
            beside = [(wishes[share.wish], share.tokens) for share in shares if share.wish not in due]
            spent = sum(wish.rows * tokens for wish, tokens in beside)
            assert spent <= budget or len(beside) == 1  # a chunk that can't be cut smaller, and nothing else

    def test_steps_come_first_whatever_the_budget(self) -> None:
        wishes = [Wish("a", 4, 500, False), Wish("b", 4, 1, True), Wish("c", 4, SHORT, True), Wish("d", 4, 90, True)]
        chosen = {share.wish: share.tokens for share in Batcher().plan(wishes, 32)}
        assert chosen[1] == 1
        assert chosen[2] == SHORT
        assert chosen.get(0, 0) + chosen.get(3, 0) <= 8

    def test_everything_is_read_in_the_end(self) -> None:
        batcher = Batcher()
        left = {index: 100 + index for index in range(9)}
        for _ in range(200):
            order = sorted(left)
            wishes = [Wish(index % 3, 1 + index % 4, left[index], False) for index in order]
            for share in batcher.plan(wishes, 64):
                left[order[share.wish]] -= share.tokens
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
            wishes = [Wish("many", 1, 1_000, False) for _ in range(8)] + [Wish("single", 1, single, False)]
            for share in batcher.plan(wishes, 64):
                if share.wish == 8:
                    single -= share.tokens
                else:
                    many -= share.tokens
        assert passes <= 2 * (2 * 100 / 64) + 1
        assert 8_000 - many >= 64 * (passes - 1) / 2 - 64

    def test_who_comes_and_goes_is_owed_nothing(self) -> None:
        """Counter-example to credit that piles up: an idle peer can't save for a burst."""
        batcher = Batcher()
        for _ in range(50):
            batcher.plan([Wish("busy", 1, 1_000, False)], 64)
        shares: dict[int, int] = {}
        for _ in range(4):
            wishes = [Wish("busy", 1, 1_000, False), Wish("back", 1, 1_000, False)]
            for share in batcher.plan(wishes, 128):
                shares[share.wish] = shares.get(share.wish, 0) + share.tokens
        assert abs(shares[0] - shares[1]) <= 128


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
        wishes = [Wish("runner", 4, 1, True)] + [Wish(index, rows, left[index], False) for index in order]
        shares = batcher.plan(wishes, times.budget(running=True))
        tokens = 0
        for share in shares:
            if share.wish:
                tokens += rows * share.tokens
                left[order[share.wish - 1]] -= share.tokens
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
        whole = Batcher().plan([Wish("runner", 4, 1, True), *(Wish(i, 1, 500, False) for i in range(4))], 10**6)
        assert Machine(0.040, 1e-3).seconds(True, sum(share.tokens for share in whole if share.wish)) > 1.0

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
            wishes = [Wish("runner", 4, 1, True)] + [Wish(name, rows, left[name], False) for name in names]
            shares = {share.wish: share.tokens for share in batcher.plan(wishes, FEWEST)}
            assert shares.pop(0) == 1
            assert sum(shares.values()) * rows <= max(FEWEST, rows)
            for index, tokens in shares.items():
                left[names[index - 1]] -= tokens
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
    ROWS = Rows(Chunk(Layout((), torch.float32, torch.device("cpu")), 3, 64, True), 0, 1)

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
        first, second = Feed(self.ROWS, [5, 6, 7, 8]), Feed(self.ROWS, [5, 6, 7])
        feeds = [first, second, Feed(self.ROWS, [9, 9], behind=[first, second])]
        assert [share.wish for share in in_order(feeds, [Share(*each) for each in fed.items()])] == kept
