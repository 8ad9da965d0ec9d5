"""The logarithmic probability code: exact table, bounded error, and what lies outside of its range."""

from __future__ import annotations

import warnings
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.codes import LARGEST, RELATIVE_ERROR, TABLE, decode_probabilities, encode_probabilities


def test_table_is_correctly_rounded_powers_of_two() -> None:
    codes = [1, 2, 2047, 2048, 2049, 40_961, 65_533, *range(5, LARGEST, 397)]
    with localcontext() as context:
        context.prec = 50
        exact = [float(Decimal(2) ** (Decimal(code - LARGEST) / 2048)) for code in codes]
    assert TABLE[codes].tolist() == exact
    assert TABLE[0] == 0
    assert TABLE[LARGEST] == 1
    assert TABLE[LARGEST - 2048] == 0.5


def test_table_increases_and_cannot_be_changed() -> None:
    assert TABLE.shape == (65_536,)
    assert TABLE.dtype == np.float64
    assert (np.diff(TABLE) > 0).all()
    with pytest.raises(ValueError, match="read-only"):
        TABLE[5] = 0.5


def test_every_code_survives() -> None:
    codes = np.arange(65_536, dtype=np.uint16)
    assert (encode_probabilities(decode_probabilities(codes)) == codes).all()


def test_relative_error_is_as_stated_and_no_smaller() -> None:
    probabilities = 2.0 ** np.random.default_rng(1).uniform(-31.999, 0, 200_000)
    error = np.abs(decode_probabilities(encode_probabilities(probabilities)) / probabilities - 1)
    assert RELATIVE_ERROR * 0.98 < error.max() < RELATIVE_ERROR < 2e-4


@given(st.floats(0, 1))
def test_no_other_code_is_nearer(probability: float) -> None:
    code = int(encode_probabilities(np.array([probability]))[0])
    if code == 0:
        # half a step below the smallest code, beyond which 0 is the answer
        assert probability <= TABLE[1] * 2 ** (-1 / 4096) * (1 + 1e-9)
        return
    distance = [abs(np.log2(TABLE[other]) - np.log2(probability)) for other in (code, max(1, code - 1))]
    distance.append(abs(np.log2(TABLE[min(LARGEST, code + 1)]) - np.log2(probability)))
    assert distance[0] <= min(distance) + 1e-9


def test_outside_of_the_range() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert encode_probabilities(np.array([0.0, -0.0, -1e-9, -5.0, 5e-324, 2.0**-33])).tolist() == [0] * 6
        assert encode_probabilities(np.array([1.0, 1.0000001, 2.0, np.inf])).tolist() == [LARGEST] * 4
        with pytest.raises(ValueError, match="NaN"):
            encode_probabilities(np.array([0.5, np.nan]))


def test_shape_and_type_of_any_input() -> None:
    for dtype in (np.float16, np.float32, np.float64):
        codes = encode_probabilities(np.full((2, 3), 0.25, dtype))
        assert codes.shape == (2, 3)
        assert codes.dtype == np.uint16
        assert (decode_probabilities(codes) == 0.25).all()
    assert len(encode_probabilities(np.array([]))) == 0
