"""The exact law of whole answers, through both state machines and the wire: the verifier's, whatever is drafted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from common.methods.drafted.distributions import VerifierDrawing
from common.methods.drafted.method import Scheme
from common.methods.rejection import scheme as judges
from common.sampling.compiled import DrawPoint, Draws, Purpose
from common.sampling.rejection import accepts
from common.sampling.truncation import Distribution
from proto.errors import ProtocolError
from tests.common.methods.drafted.pump import Length, Model, Pair, mixture, table_model
from tests.common.methods.drafted.schemes import DRAFTED, DRAWN, Case, cases, scheme_of
from tests.support.enumeration import EXACT, law_of

VOCABULARY, TOKENS = 3, 3
VERIFIER = table_model(VOCABULARY, 1)
DRAFTER = table_model(VOCABULARY, 2)
# The two most probable of three tokens: an answer has a tenth of the decisions that it has with all of them.
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "dsd": [{"top_k": 2}],
    "dssd": [{"top_k": 2}],
    "qsv": [{"resolution": 4}],
    "rapid": [{"top_k": 2, "eta": 0.0}],  # its own law is another one
}
WHOLE: list[tuple[str, dict[str, Any], int]] = [
    *((method, {"top_k": 0}, length) for method in ("dsd", "dssd") for length in (1, 2)),
    ("rapid", {"top_k": 0, "eta": 0.0}, 1),
]
MORE: list[Case] = [
    ("dsd", {"top_k": 2, "temperature": 0.7}),
    ("dssd", {"top_k": 2, "draft_temperature": 1.5}),
    ("qsv", {"resolution": 3, "index_code": "fixed", "temperature": 0.6, "draft_temperature": 1.0}),
    ("qsv", {"resolution": 16, "top_k": 2, "top_p": 0.9}),
]


@dataclass(frozen=True, slots=True)
class Once:
    """Draws each decision of a place once: asked for again, it comes out the same, as with a seed.

    Behind another prefix it is another decision, with a uniform of its own.
    """

    draws: Draws
    place: DrawPoint
    made: dict[tuple[DrawPoint, Purpose, bytes], Any]

    def happens(self, purpose: Purpose, probability: float) -> bool:
        return bool(self._once(purpose, np.float64(probability), lambda: self.draws.happens(purpose, probability)))

    def pick(self, purpose: Purpose, weights: NDArray[np.float64]) -> int:
        return int(self._once(purpose, weights, lambda: self.draws.pick(purpose, weights)))

    def _once(self, purpose: Purpose, law: Any, draw: Callable[[], Any]) -> Any:
        key = self.place, purpose, law.tobytes()
        if key not in self.made:
            self.made[key] = draw()
        return self.made[key]


def with_draws(scheme: Scheme, draws: Draws) -> Any:
    """The scheme with all draws of all positions taken from `draws`."""

    made: dict[tuple[DrawPoint, Purpose, bytes], Any] = {}

    def changed(part: Any) -> Any:
        return replace(part, draws=lambda place: Once(draws, place, made))

    return replace(scheme, drafts=changed(scheme.drafts), judge=changed(scheme.judge))  # type: ignore[type-var]


def answer_law(scheme: Scheme, length: int, drafter: Model = DRAFTER) -> dict[tuple[int, ...], float]:
    def answer(draws: Draws) -> tuple[int, ...]:
        return tuple(Pair(with_draws(scheme, draws), drafter, VERIFIER, Length(length)).run())

    return law_of(answer)


def verifiers_law(scheme: Scheme) -> dict[tuple[int, ...], float]:
    """The law of answers that the verifier draws alone, token by token."""
    law: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(TOKENS):
        law = {
            (*path, token): probability * share
            for path, probability in law.items()
            for token, share in _next(scheme, path).items()
        }
    return law


def _next(scheme: Scheme, path: Sequence[int]) -> dict[int, float]:
    view: Any = scheme.verifier.drafted(len(path), mixture(VERIFIER, path), None)
    found: Distribution = view.distribution
    return dict(zip(found.ids.tolist(), found.probabilities.tolist(), strict=True))


def distance(one: dict[tuple[int, ...], float], other: dict[tuple[int, ...], float]) -> float:
    """Total variation."""
    return 0.5 * sum(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in one.keys() | other.keys())


@pytest.mark.parametrize(
    ("method", "fields", "length"),
    [
        # With a proposal at every token, with several, and with all of them in one.
        *((*case, length) for case in cases(DRAWN, OPTIONS) for length in (1, 2, 3)),
        *WHOLE,
        *((*case, 2) for case in MORE),
    ],
)
def test_answers_follow_the_verifiers_law(method: str, fields: dict[str, Any], length: int) -> None:
    scheme = scheme_of(method, VOCABULARY, TOKENS, **fields)
    assert distance(answer_law(scheme, length), verifiers_law(scheme)) < EXACT


@pytest.mark.parametrize("method", DRAFTED)
def test_a_drafter_of_temperature_0_proposes_what_is_most_probable(method: str) -> None:
    """0 is a temperature, and not the answer's."""
    drafted = set()
    for seed in range(20):
        scheme = scheme_of(method, VOCABULARY, TOKENS, draft_temperature=0.0, seed=seed)
        pair = Pair(scheme, DRAFTER, VERIFIER, Length(1))
        assert pair.draft()
        assert pair.device.decided == []
        drafted.add(pair.device._views[0].token)
    assert drafted == {int(DRAFTER(()).argmax())}


@pytest.mark.parametrize("method", DRAWN)
def test_a_drafter_that_agrees_is_never_rejected(method: str) -> None:
    fields = {"resolution": 512} if method == "qsv" else OPTIONS.get(method, [{}])[0]
    scheme = scheme_of(method, VOCABULARY, TOKENS, **fields)
    pair = Pair(scheme, VERIFIER, VERIFIER, Length(2))
    pair.run()
    assert pair.device.counters.accepted >= pair.device.counters.proposed - (method == "qsv")


class TestMutants:
    """Errors of published programs, or of this one's beginnings, each of which another law gives away."""

    def check(self, change: Callable[[pytest.MonkeyPatch], None], method: str = "dsd", **fields: Any) -> None:
        scheme = scheme_of(method, VOCABULARY, TOKENS, **({"top_k": 0} | fields))
        expected = verifiers_law(scheme)
        with pytest.MonkeyPatch.context() as patch:
            change(patch)
            assert distance(answer_law(scheme, 1), expected) > 1e-3

    def test_ratio_upside_down(self) -> None:
        """As DSSD prints it."""

        def upside_down(token: int, proposed: float, verifier: Distribution, draws: Draws) -> bool:
            ratio = proposed / verifier.of(token) if verifier.of(token) else 1.0
            return draws.happens(Purpose.ACCEPT, min(1.0, ratio))

        def change(patch: pytest.MonkeyPatch) -> None:
            patch.setattr("common.methods.rejection.scheme.accepts", upside_down)

        self.check(change)

    def test_unwarped_drafter_in_the_ratio(self) -> None:
        """As the DSSD program accepts: drawn with top-k, accepted with the unfiltered distribution."""
        everything = mixture(DRAFTER, ())

        def unwarped(token: int, proposed: float, verifier: Distribution, draws: Draws) -> bool:
            return accepts(token, float(everything[token]), verifier, draws)

        def change(patch: pytest.MonkeyPatch) -> None:
            patch.setattr("common.methods.rejection.scheme.accepts", unwarped)

        self.check(change, top_k=2)

    def test_bonus_from_the_last_proposals_row(self) -> None:
        def change(patch: pytest.MonkeyPatch) -> None:
            original = judges.judge
            patch.setattr(
                judges.SparseJudge,
                "judge",
                lambda self, place, proposed, targets: original(
                    self.draws,
                    place,
                    proposed,
                    [*targets[: len(proposed)], targets[len(proposed) - 1]]
                    if len(targets) > len(proposed)
                    else targets,
                ),
            )

        self.check(change)

    def test_residual_forgotten(self) -> None:
        def change(patch: pytest.MonkeyPatch) -> None:
            patch.setattr("common.sampling.rejection._residual", lambda verifier, drafter: verifier.probabilities)

        self.check(change)
        self.check(change, "dssd")

    def test_verifiers_distribution_not_rounded_before_it_is_used(self) -> None:
        """The device sees that the verifier rejected what the distribution that it was sent accepts."""

        def change(patch: pytest.MonkeyPatch) -> None:
            exact = VerifierDrawing.drafted

            def unrounded(self: VerifierDrawing, position: int, probabilities: Any, found: Any) -> Any:
                view = exact(self, position, probabilities, found)
                return replace(view, distribution=self.warp(probabilities))

            patch.setattr(VerifierDrawing, "drafted", unrounded)

        scheme = scheme_of("dssd", VOCABULARY, TOKENS, top_k=0)
        with pytest.MonkeyPatch.context() as patch:
            change(patch)
            with pytest.raises(ProtocolError, match="does not accept"):
                answer_law(scheme, 2)


class TestSampleThenQuantise:
    def test_golden_law_of_one_token(self) -> None:
        """The baseline of QSV's Figs. 3 and 4 follows neither side's distribution."""
        drafter, verifier = np.asarray([0.2, 0.3, 0.5]), np.asarray([0.5, 0.3, 0.2])
        fields: dict[str, Any] = {"resolution": 4, "order": "sample-quantise", "top_k": 0}
        scheme = scheme_of("qsv", VOCABULARY, 1, **fields)

        def answer(draws: Draws) -> int:
            (token,) = Pair(with_draws(scheme, draws), lambda path: drafter, lambda path: verifier, Length(1)).run()
            return token

        law = law_of(answer)
        assert [law[token] for token in range(3)] == pytest.approx([0.45, 0.35, 0.20], abs=1e-7)
