"""The exact law of rapid's answers: p̂ at every token, whatever is drafted and however long proposals are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from common.answer.request import Privacy, RequestError
from common.draft_policy.times import Extension
from common.methods.drafted.cloud import Passage
from common.methods.drafted.method import Scheme
from common.methods.drafted.payloads import decode_sparse
from common.methods.rapid.method import RapidRequest, check_rapid
from common.methods.rapid.rapid import RapidJudge, RapidScheme, choose_passages
from common.sampling.compiled import DrawPoint
from common.sampling.rejection import augmented, likeliest, replacement
from common.sampling.truncation import Distribution
from proto.framing import decode
from proto.messages import MOST_FETCHED, Propose
from tests.common.methods.drafted.pump import Length, Pair, mixture, table_model
from tests.common.methods.drafted.schemes import scheme_of
from tests.common.methods.drafted.test_law import DRAFTER, VERIFIER, answer_law, distance, verifiers_law
from tests.support.enumeration import EXACT

VOCABULARY, TOKENS = 3, 3
Law = dict[tuple[int, ...], float]
# Mostly of the two most probable of three tokens: such answers have a tenth of the decisions.
SETTINGS: list[dict[str, Any]] = [
    {"eta": 2.0, "top_k": 2},
    {"eta": 5.0, "top_k": 2, "draft_temperature": 1.5},
    {"eta": 10.0, "top_k": 2, "temperature": 0.7},
    {"eta": 40.0, "top_k": 0, "draft_temperature": 0.0},
    {"eta": 5.0, "draft_codec": "lattice", "resolution": 4, "top_k": 0},
    {"eta": 5.0, "draft_codec": "lattice", "resolution": 16, "index_code": "fixed", "top_p": 0.9},
    {"eta": 5.0, "temperature": 0.0, "top_k": 0},
    {"eta": 5.0, "temperature": 0.0, "draft_temperature": 1.0, "top_k": 0},
]


def own(scheme: Scheme, path: Sequence[int]) -> Distribution:
    found: Distribution = scheme.verifier.drafted(len(path), mixture(VERIFIER, path), None).distribution  # type: ignore[attr-defined]
    return found


def drafted(scheme: Scheme, path: Sequence[int]) -> Distribution:
    found: Distribution = scheme.drafter.drafted(len(path), mixture(DRAFTER, path), None).distribution  # type: ignore[attr-defined]
    return found


def promised_law(scheme: RapidScheme) -> Law:
    """The law of answers that are drawn token by token from p̂."""
    law: Law = {(): 1.0}
    for _ in range(TOKENS):
        longer: Law = {}
        for path, probability in law.items():
            target = augmented(own(scheme, path), drafted(scheme, path), scheme.judge.eta)
            if scheme.judge.greedy:
                target = likeliest(target)
            for token, share in zip(target.ids.tolist(), target.probabilities.tolist(), strict=True):
                longer[(*path, token)] = probability * share
        law = longer
    return law


def scheme(**fields: Any) -> RapidScheme:
    made = scheme_of("rapid", VOCABULARY, TOKENS, **fields)
    assert isinstance(made, RapidScheme)
    return made


@pytest.mark.parametrize(
    ("fields", "length"),
    [
        *((each, 2) for each in SETTINGS),
        ({"eta": 2.0, "top_k": 0}, 1),
        # With a proposal at every token, and with all of them in one.
        *((SETTINGS[each], length) for each in (0, 4, 7) for length in (1, 3)),
    ],
)
def test_answers_follow_the_promised_law(fields: dict[str, Any], length: int) -> None:
    made = scheme(**fields)
    assert distance(answer_law(made, length), promised_law(made)) < EXACT


def test_without_strength_they_are_the_verifiers_by_the_papers_residual_too() -> None:
    made = scheme(eta=0.0, residual="paper", top_k=0)
    assert distance(answer_law(made, 1), verifiers_law(made)) < EXACT


@pytest.mark.parametrize(("temperature", "seed"), [(0.0, 0), *((1.0, seed) for seed in range(10))])
def test_without_strength_it_is_plain_speculative_decoding(seed: int, temperature: float) -> None:
    """Token by token and round by round as `dsd`."""
    verifier = table_model(7, 1, 3.0)
    drafter = table_model(7, 2, 3.0, beside=verifier)
    pairs = []
    for method, extra in (("dsd", {}), ("rapid", {"eta": 0.0})):
        fields: dict[str, Any] = {"seed": seed, "temperature": temperature, "top_k": 0, **extra}
        made = scheme_of(method, 7, 40, (6,), **fields)
        pairs.append(Pair(made, drafter, verifier, Length(4)))
    assert pairs[0].run() == pairs[1].run()
    counted = [(pair.device.counters.proposed, pair.device.counters.accepted) for pair in pairs]
    assert counted[0] == counted[1]


@pytest.mark.parametrize("privacy", ["strict", "offline"])
def test_nothing_is_computed_for_the_cloud_from_the_callers_own_texts_unless_balanced(privacy: Privacy) -> None:
    """The drafter's distributions go to the verifier, and these texts could be read out of them."""
    texts: dict[str, Any] = {"question": "?", "prompt": "?", "method": "rapid", "long_document": "?"}
    own = texts | {"passages": ("A private note.",)}
    with pytest.raises(RequestError, match="set privacy 'balanced'") as refused:
        check_rapid(RapidRequest(**own, privacy=privacy))
    assert refused.value.field == "passages"
    check_rapid(RapidRequest(**own, privacy="balanced"))
    check_rapid(RapidRequest(**own, privacy=privacy, verifier="device", sources="device"))
    check_rapid(RapidRequest(**texts, privacy=privacy))


@pytest.mark.parametrize(
    ("limit", "kept"),
    [
        (3, ""),
        (4, "c"),
        (6, "c"),
        (7, "c"),  # `e` would fit, and `b` is more similar
        (9, "bc"),
        (11, "bce"),
        (15, "abce"),
        (100, "abcde"),
    ],
)
def test_the_drafter_reads_the_most_similar_passages_that_fit_in_the_documents_order(limit: int, kept: str) -> None:
    lengths = {"a": (3, 0.3), "b": (4, 0.6), "c": (3, 0.9), "d": (5, 0.2), "e": (1, 0.5)}
    passages = [Passage("almanac", similarity, name * length) for name, (length, similarity) in lengths.items()]
    letters: Any = SimpleNamespace(encode=list)  # a token each, and one for the end of line behind each passage
    assert "".join(passage.text[0] for passage in choose_passages(letters, passages, limit)) == kept


def test_the_drafter_reads_no_more_passages_than_travel() -> None:
    passages = [Passage("almanac", place / 1000, "?") for place in range(300)]
    letters: Any = SimpleNamespace(encode=list)
    assert choose_passages(letters, passages, 1000) == passages[-MOST_FETCHED:]


class TestThePapersResidual:
    @pytest.mark.parametrize(("length", "top_k"), [(1, 0), (2, 2)])
    def test_follows_neither_law(self, length: int, top_k: int) -> None:
        made = scheme(eta=5.0, residual="paper", top_k=top_k)
        found = answer_law(made, length)
        assert distance(found, promised_law(made)) > 0.01
        assert distance(found, verifiers_law(made)) > 0.01


class TestMutants:
    """Errors of the paper or its program, or of a careless change, each given away by another law."""

    def check(self, change: Callable[[pytest.MonkeyPatch], None]) -> None:
        made = scheme(eta=5.0, top_k=0)
        expected = promised_law(made)
        with pytest.MonkeyPatch.context() as patch:
            change(patch)
            assert distance(answer_law(made, 1), expected) > 1e-3

    def test_bonus_from_the_verifiers_own(self) -> None:
        """As without the drafter's distribution there."""
        judge = RapidJudge.judge

        def change(patch: pytest.MonkeyPatch) -> None:
            def from_own(self: RapidJudge, place: DrawPoint, proposed: Any, targets: Any) -> Any:
                if len(targets) > len(proposed):
                    same = targets[-1].distribution  # nothing moves towards itself
                    proposed = [*proposed[:-1], replace(proposed[-1], behind=same)]
                return judge(self, place, proposed, targets)

            patch.setattr(RapidJudge, "judge", from_own)

        self.check(change)

    def test_residual_of_the_verifiers_own(self) -> None:
        """norm(max(p - q, 0)), as plain speculative decoding has it."""

        def change(patch: pytest.MonkeyPatch) -> None:
            shifted = RapidJudge._shifted
            seen: list[Distribution] = []

            def noted(self: RapidJudge, verifier: Distribution, drafter: Distribution) -> Distribution:
                seen.append(verifier)
                return shifted(self, verifier, drafter)

            patch.setattr(RapidJudge, "_shifted", noted)
            patch.setattr(
                "common.methods.rapid.rapid.replacement",
                lambda target, drafter, draws: replacement(seen[-1], drafter, draws),
            )

        self.check(change)

    def test_the_drafters_distribution_one_place_too_early(self) -> None:
        def change(patch: pytest.MonkeyPatch) -> None:
            read = RapidJudge.read

            def early(self: RapidJudge, message: Propose) -> Any:
                return [
                    each if each.behind is None else replace(each, behind=each.distribution)
                    for each in read(self, message)
                ]

            patch.setattr(RapidJudge, "read", early)

        self.check(change)


class TestLookingAhead:
    """The drafter's distribution at the bonus' position travels, its token does not."""

    def proposals(self, length: int, eos: tuple[int, ...] = (), tokens: int = 12, seed: int = 0) -> list[Propose]:
        made = scheme_of("rapid", 7, tokens, eos, top_k=0, seed=seed)
        pair = Pair(made, table_model(7, 2), table_model(7, 1), Length(length))
        sent = []
        while pair.device.finished is None:
            assert pair.draft() or pair.up or pair.verify() or pair.deliver_down()
            while pair.up:
                message = decode(pair.up[0])
                assert isinstance(message, Propose)
                sent.append(message)
                pair.deliver_up()
        return sent

    @pytest.mark.parametrize("length", [1, 4])
    def test_one_distribution_more_than_tokens(self, length: int) -> None:
        for message in self.proposals(length):
            ends = message.position + len(message.tokens) == 12
            assert len(message.tokens) == min(length, 12 - message.position)
            assert len(decode_sparse(message.payload, 7, 65)) == len(message.tokens) + (not ends)

    def test_none_behind_the_end(self) -> None:
        last = [self.proposals(4, eos=(3, 5), tokens=60, seed=seed)[-1] for seed in range(20)]
        ended = [message for message in last if message.tokens[-1] in (3, 5)]
        assert ended
        for message in ended:
            assert len(decode_sparse(message.payload, 7, 65)) == len(message.tokens)

    def test_a_verifier_that_is_gone_meanwhile(self) -> None:
        """Drafts that were made to look ahead are drafts like others to a drafter that goes on alone."""
        made = scheme_of("rapid", 7, 12, top_k=0)
        pair = Pair(made, table_model(7, 2), table_model(7, 1), Length(2))
        assert pair.draft()
        assert pair.draft()
        assert not pair.up
        pair.act(pair.device.out_of_patience())
        assert pair.draft()
        assert len(pair.tokens) == 3
        assert pair.degraded == [True] * 3


@pytest.mark.parametrize("extensions", [("more", "none"), ("last",)])
def test_a_policy_that_stops_early_looks_ahead_all_the_same(extensions: Sequence[Extension]) -> None:
    """The draft behind the last one that is proposed is the one whose distribution travels."""

    class Short(Length):
        def extension(self, confidence: float, drafted: int) -> Extension:
            return extensions[drafted]

    made = scheme(eta=5.0, top_k=0)
    pair = Pair(made, DRAFTER, VERIFIER, Short(3))
    assert pair.draft()
    assert pair.draft()
    message = decode(pair.up[0])
    assert isinstance(message, Propose)
    assert len(message.tokens) == 1
    assert len(decode_sparse(message.payload, VOCABULARY, 65)) == 2
