"""Trees that grow while it is worth the time: compared with all that could have been chosen."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.answer.values import ROOT
from common.methods.edgellm.growth import EXPONENTS, Agreement, BestFirst, Candidate, Match, TokenTree, TreeTimes

# What each of the candidates behind a path has of the probability.
Shares = Callable[[Sequence[int]], Sequence[float]]
EOS = frozenset({99})


def believing() -> Agreement:
    """The draft model's own probabilities are the verifier's."""
    return Agreement([float(exponent == 1.0) for exponent in EXPONENTS])


def candidates(shares: Sequence[float]) -> list[Candidate]:
    return [Candidate(token, share) for token, share in enumerate(sorted(shares, reverse=True))]


def step(growth: BestFirst, tree: TokenTree, node: int, shares: Shares) -> None:
    """A step of the draft model behind `node`."""
    offered = candidates(shares([tree.tokens[each] for each in tree.path(node)]))
    tree.grow(node, growth.chosen(tree, node, offered), EOS, offered)


def grown(growth: BestFirst, shares: Shares, limit: int = 30) -> TokenTree:
    tree = TokenTree(limit)
    while (node := growth.leaf(tree)) is not None:
        step(growth, tree, node, shares)
    return tree


def drafts(tree: TokenTree) -> int:
    return len(tree.read) + tree.root_read


def same(*shares: float) -> Shares:
    return lambda path: shares


def drawn(seed: int, most: int) -> Shares:
    """Shares at random, of `most` candidates at most."""

    def shares(path: Sequence[int]) -> Sequence[float]:
        chance = random.Random(f"{seed} {list(path)}")
        weights = [chance.random() ** 3 for _ in range(chance.randint(1, most))]
        return [each / sum(weights) * chance.uniform(0.5, 1.0) for each in weights]

    return shares


TIMES = st.builds(
    TreeTimes,
    st.sampled_from([0.0, 0.002, 0.05, 0.5]),
    st.sampled_from([0.3, 1.0, 30.0]),
    st.sampled_from([0.0, 0.01, 0.2]),
)


class TestChoice:
    @settings(max_examples=80, deadline=None)
    @given(st.integers(0, 2**20), TIMES, st.integers(1, 6), st.integers(1, 4))
    def test_no_other_nodes_of_the_tree_are_better(self, seed: int, times: TreeTimes, size: int, steps: int) -> None:
        everything = BestFirst(11, TreeTimes(0.0, 1e9), believing())
        tree = TokenTree(9)
        for _ in range(steps):
            if (node := everything.leaf(tree)) is not None:
                step(everything, tree, node, drawn(seed, 3))
        found = BestFirst(size, times, believing()).choice(tree)
        chosen = set(found.nodes)
        assert all(tree.parents[node] in chosen | {ROOT} for node in chosen)
        spent = times.verify + times.draft * drafts(tree)
        assert found.expected == pytest.approx(1 + sum(tree.confidences[node] for node in chosen))
        assert found.seconds == pytest.approx(spent + times.node * len(chosen))
        rates = [
            (1 + sum(tree.confidences[node] for node in nodes)) / (spent + times.node * count)
            for count in range(min(size, len(tree)) + 1)
            for nodes in combinations(range(len(tree)), count)
            if all(tree.parents[node] in {*nodes, ROOT} for node in nodes)
        ]
        assert found.rate == pytest.approx(max(rates))


class TestSteps:
    @pytest.mark.parametrize("verify", [0.05, 0.2, 1.0, 5.0, 100.0])
    @pytest.mark.parametrize("share", [0.3, 0.7, 0.95])
    def test_a_chain_has_the_best_length(self, share: float, verify: float) -> None:
        times = TreeTimes(0.05, verify, 0.01)
        growth = BestFirst(200, times, believing())
        tree = grown(growth, same(share), limit=200)
        rates = [
            sum(share**length for length in range(longest + 1)) / (verify + longest * (times.draft + times.node))
            for longest in range(200)
        ]
        best = max(range(1, 200), key=rates.__getitem__)  # whether the first step is worth it shows when it is taken
        assert drafts(tree) == best
        assert len(growth.verified(tree)) == best

    @pytest.mark.parametrize("size", [5, 40])
    @pytest.mark.parametrize("shares", [(0.6, 0.2, 0.1), (0.4, 0.3, 0.2), (0.9, 0.05)])
    @pytest.mark.parametrize("times", [TreeTimes(0.005, 1.0), TreeTimes(0.02, 1.0, 0.005), TreeTimes(0.1, 0.3)])
    def test_no_other_number_of_steps_is_better(self, shares: Sequence[float], times: TreeTimes, size: int) -> None:
        growth = BestFirst(size, times, believing())
        tree = grown(growth, same(*shares))
        assert len(growth.verified(tree)) <= size
        rates = []
        free = BestFirst(size, TreeTimes(0.0, 1.0), believing())
        other = TokenTree(30)
        while (node := free.leaf(other)) is not None:
            step(free, other, node, same(*shares))
            rates.append(growth.choice(other).rate)
        assert growth.choice(tree).rate >= 0.995 * max(rates)

    def test_the_dearer_a_pass_the_more_is_drafted(self) -> None:
        counts = [
            drafts(grown(BestFirst(64, TreeTimes(0.004, verify), believing()), same(0.5, 0.3, 0.1)))
            for verify in (0.01, 0.1, 1.0, 10.0)
        ]
        assert counts == sorted(set(counts)), "each takes more drafts than the one before"

    @settings(max_examples=60, deadline=None)
    @given(st.integers(0, 2**20), TIMES, st.integers(1, 20))
    def test_no_more_is_read_than_is_verified(self, seed: int, times: TreeTimes, size: int) -> None:
        """The room of the draft model depends on it."""
        tree = grown(BestFirst(size, times, believing()), drawn(seed, 5))
        assert len(tree.read) <= size

    def test_the_best_of_a_large_tree_are_verified(self) -> None:
        growth = BestFirst(3, TreeTimes(0.0, 1.0), believing())
        tree = grown(growth, same(0.6, 0.3))
        pruned = tree.pruned(growth.verified(tree))
        assert pruned.tokens == [0, 1, 0]
        assert pruned.confidences == pytest.approx([0.6, 0.3, 0.36])
        assert pruned.parents == [ROOT, ROOT, 0]

    @pytest.mark.parametrize(("end", "branches"), [("of the sequence", 4), ("at the limit", 4), ("far away", 1)])
    def test_branches_near_the_end_of_the_answer_go_on_to_it(self, end: str, branches: int) -> None:
        """The fourth token is any of several. Six make the answer, or many more: only what ends it saves a pass."""

        def offered(length: int) -> list[Candidate]:
            if length == 3:
                return [Candidate(token, share) for token, share in enumerate((0.8, 0.06, 0.05, 0.04))]
            return [Candidate(99 if length == 6 and end == "of the sequence" else 0, 0.99)]

        growth = BestFirst(40, TreeTimes(0.02, 1.0), believing())
        tree = TokenTree(6 if end == "at the limit" else 60)
        while (node := growth.leaf(tree)) is not None:
            told = offered(len(tree.path(node)))
            tree.grow(node, growth.chosen(tree, node, told), EOS, told)
        verified = tree.pruned(growth.verified(tree))
        assert not any(verified.ends(node) for node in range(len(verified))), "the verifier draws an end by itself"
        reaching = [leaf for leaf in verified.leaves if verified.lengths[leaf] >= 6]
        assert len(reaching) == branches

    def test_nothing_grows_behind_an_end_or_beyond_the_answer(self) -> None:
        growth = BestFirst(9, TreeTimes(0.0, 1.0), believing())
        tree = TokenTree(2)
        offered = [Candidate(99, 0.9), Candidate(1, 0.1)]
        for behind in (ROOT, 1):
            assert growth.leaf(tree) == behind
            tree.grow(behind, growth.chosen(tree, behind, offered), EOS, offered)
        assert growth.leaf(tree) is None
        assert growth.leaf(TokenTree(0)) is None


class TestAgreement:
    def test_the_draft_models_own_probabilities(self) -> None:
        assert believing().of([0.6, 0.2, 0.1]) == pytest.approx([0.6, 0.2, 0.1])
        assert believing().of([]) == []

    @settings(max_examples=100)
    @given(st.lists(st.floats(1e-12, 1.0), min_size=1, max_size=64), st.booleans())
    def test_probabilities(self, weights: list[float], whole: bool) -> None:
        shares = sorted((weight / sum(weights) * (1.0 if whole else 0.7) for weight in weights), reverse=True)
        agreement = Agreement()
        for place in (0, len(shares) - 1, None):
            agreement.judged(shares, place)
            found = agreement.of(shares)
            assert found == pytest.approx(sorted(found, reverse=True))
            assert 0 <= sum(found) <= 1 + 1e-9
            assert all(0 <= each <= 1 for each in found)

    @pytest.mark.parametrize("sharpness", [0.25, 1.0, 4.0])
    def test_it_learns_how_far_the_models_agree(self, sharpness: float) -> None:
        """Of 20 kinds of places with outcomes of known frequency, the first candidate's is told to .08 on the average;
        before it learns, to .25 where the models are nearer or farther than expected.
        """
        chance, agreement = random.Random(1), Agreement()
        places = [sorted((chance.random() ** 4 for _ in range(8)), reverse=True) for _ in range(20)]
        places = [[weight / sum(each) for weight in each] for each in places]
        laws = [[share**sharpness for share in each] for each in places]
        for _ in range(400):
            number = chance.randrange(20)
            agreement.judged(places[number], chance.choices(range(8), laws[number])[0])
        told = [agreement.of(each)[0] for each in places]
        true = [law[0] / sum(law) for law in laws]
        assert sum(abs(one - other) for one, other in zip(told, true, strict=True)) / len(places) < 0.08

    def test_it_takes_in_what_the_verifier_drew(self) -> None:
        """Behind the root and behind each node that held, and nowhere else."""
        agreement = Agreement()
        growth = BestFirst(9, TreeTimes(0.0, 1.0), agreement)
        tree = TokenTree(9)
        for behind in (ROOT, 0, 1):
            step(growth, tree, behind, same(0.5, 0.3))
        before = agreement.of([0.5, 0.3])
        growth.judged(tree, Match((), None, 0))
        assert agreement.of([0.5, 0.3]) == before
        growth.judged(tree, Match((0,), 7, 1))  # the first candidate, then none of them
        expected = Agreement()
        expected.judged([0.5, 0.3], 0)
        expected.judged([0.5, 0.3], None)
        assert agreement.of([0.5, 0.3]) == expected.of([0.5, 0.3]) != before


class TestTimes:
    def test_before_the_first(self) -> None:
        times = TreeTimes(0.01, 2.0, 0.001)
        assert (times.draft, times.verify, times.node) == (0.01, 2.0, 0.001)

    def test_one_slow_step_says_little(self) -> None:
        times = TreeTimes(1.0, 1.0)
        for seconds in (0.01, 0.01, 5.0, 0.01):
            times.drafted(seconds)
        assert times.draft == 0.01

    def test_passes_of_unlike_sizes_tell_what_a_node_takes(self) -> None:
        times = TreeTimes(0.01, 9.0)
        for nodes in [4, 64, 16, 48] * 8:
            times.verified(nodes, 1.5 + 0.01 * nodes)
        assert times.node == pytest.approx(0.01, rel=0.4)
        assert times.verify + 32 * times.node == pytest.approx(1.5 + 0.32, rel=0.1)

    def test_noise_does_not_look_like_nodes_that_take_time(self) -> None:
        chance, times = random.Random(3), TreeTimes(0.01, 9.0)
        for _ in range(32):
            times.verified(chance.randint(50, 64), chance.uniform(1.4, 2.6))
        assert times.node < 0.005
        assert times.verify == pytest.approx(2.0, abs=0.35)

    @pytest.mark.parametrize("wrong", [(-1.0, 1.0, 0.0), (0.0, 0.0, 0.0), (0.0, 1.0, float("nan"))])
    def test_what_is_not_possible(self, wrong: tuple[float, float, float]) -> None:
        with pytest.raises(ValueError, match="not possible"):
            TreeTimes(*wrong)
