"""The suite `privacy` measures an attacker's success as it is defined."""

from __future__ import annotations

import numpy as np
import pytest

from scripts.bench.privacy.attacks import Guess, excess, guesses, separation, share_of, told_apart
from scripts.bench.privacy.suite import secrets
from scripts.bench.privacy.traffic import features, gaps, named

NOTHING = Guess(2, np.zeros(8), 10)
SURE = Guess(2, np.where(np.arange(8) == 2, 0.0, -50.0), 10)
WRONG = Guess(2, np.where(np.arange(8) == 3, 0.0, -50.0), 10)


class TestGuess:
    def test_nothing_is_known(self) -> None:
        assert NOTHING.hit == 1 / 8
        assert NOTHING.bits == pytest.approx(0.0)
        assert NOTHING.exposure == pytest.approx(np.log2(8 / 4.5))

    def test_everything_is_known(self) -> None:
        assert (SURE.hit, SURE.bits, SURE.exposure) == pytest.approx((1.0, 3.0, 3.0))

    def test_led_astray(self) -> None:
        assert WRONG.hit == 0.0
        assert WRONG.bits < -60

    def test_over_the_text(self) -> None:
        assert excess([SURE, SURE], [NOTHING, NOTHING]) == pytest.approx((7 / 8, 7 / 8, 7 / 8))

    def test_told_apart(self) -> None:
        assert told_apart([SURE] * 20) == (1.0, 1.0)
        assert told_apart([NOTHING] * 20) == (0.5, 0.0)


def test_answers_about_one_secret_add_up() -> None:
    case = {"model": "m", "attack": "canary", "cloud": "honest", "temperature": 1.0, "way": "race"}
    rows = [
        case | {"trial": trial, "secret": 1, "tokens": 3, "logs": {"text": [0.0, 0.0], "strict": [-1.0, 0.0]}}
        for trial in (0, 0, 1)
    ]
    assert [guess.logs.tolist() for guess in guesses(rows, "strict")] == [[-2.0, 0.0], [-1.0, 0.0]]
    assert [guess.tokens for guess in guesses(rows, "text")] == [6, 3]
    text, strict = secrets(rows).rows
    assert (text[6], text[7], strict[6]) == ("50.0", "", "100.0")
    assert str(strict[7]).startswith("+50.0")


def test_separation_and_shares() -> None:
    assert separation([3.0, 4.0], [1.0, 2.0]) == (1.0, 1.0)
    assert separation([1.0], [1.0]) == (0.5, 0.0)
    assert separation([0.0], [1.0]) == (0.0, 0.0)
    assert share_of(0, 10) == pytest.approx((0.0, 0.0, 0.3085), abs=1e-4)
    assert share_of(10, 10) == pytest.approx((1.0, 0.6915, 1.0), abs=1e-4)


class TestTraffic:
    def test_padding_hides_sizes_and_no_times(self) -> None:
        one, other = [[0.0, 300], [5.0, -40]], [[0.0, 310], [5.0, -60]]
        assert features(one, 1, True, False) != features(other, 1, True, False)
        assert features(one, 256, True, False) == features(other, 256, True, False)
        assert features(one, 1, False, True) == features(other, 1, False, True)

    def test_other_sizes_are_named(self) -> None:
        rows = [
            {"question": question, "repeat": repeat, "pieces": [[0.0, 100 + 50 * question], [1.0, -20]]}
            for repeat in range(8)
            for question in range(4)
        ]
        assert named(rows, 1, True, False) == (32, 32)
        assert named(rows, 1024, True, False)[0] <= 8

    def test_a_gap_is_counted_from_the_latest_need(self) -> None:
        def sent(side: str, detail: str, position: int, start: float, end: float) -> dict[str, object]:
            return {"side": side, "kind": "transmit", "detail": detail, "position": position} | {
                "start": start * 1e6,
                "end": end * 1e6,
            }

        decided = [{"kind": "aggregate", "position": at, "device_accepted": at != 1} for at in range(3)]
        spans = [
            *(sent("cloud", "draft", at, 10.0 * at, 10.0 * at + 30) for at in range(3)),
            *(sent("device", "target", at, 0, end) for at, end in enumerate((60, 75, 120))),
            *decided,
        ]
        assert list(gaps(spans)) == [{"gap": 5.0, "right": True}, {"gap": 40.0, "right": False}]
