"""Fields can be sent and received with the values that their annotations allow, and with no others."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from hypothesis import given

from proto.errors import ProtocolError
from proto.framing import TAGS, pack, unpack
from proto.messages import Bytes, Count, Hello, Message, Open, Real, Text, Welcome
from tests.proto.strategies import messages

SECRET = "the canary sings"
INFINITY = float("inf")


@dataclass(frozen=True, slots=True)
class Inner:
    number: Annotated[int, Count(8)]


@dataclass(frozen=True, slots=True)
class Sample:
    """One field of every kind."""

    flag: bool
    number: Annotated[int, Count(1000)]
    real: Annotated[float, Real(-1.0, 2.0)]
    text: Annotated[str, Text(16)]
    choice: Literal["north", "south"]
    words: Annotated[tuple[Annotated[str, Text(4)], ...], Count(3)]
    some: Annotated[int, Count(9, least=2)]
    parts: Annotated[tuple[bool, ...], Count(3, least=1)]
    inner: Inner
    data: Annotated[bytes, Bytes(4)]


VALID = Sample(True, 999, 2.0, "sixteen bytes ok", "south", ("a", "b"), 2, (True,), Inner(7), b"1234")
WIRE = [True, 999, 2.0, "sixteen bytes ok", 1, ["a", "b"], 2, [True], [7], b"1234"]
NAMES = [field.name for field in fields(Sample)]

# Refused in both directions.
WRONG: list[tuple[str, Any, str]] = [
    ("flag", 1, "boolean"),
    ("flag", None, "boolean"),
    ("number", -1, "from 0 to 999"),
    ("number", 1000, "from 0 to 999"),
    ("number", 2**80, "from 0 to 999"),
    ("number", True, "from 0 to 999"),
    ("number", 1.0, "from 0 to 999"),
    ("number", "1", "from 0 to 999"),
    ("real", -1.001, "from -1 to 2"),
    ("real", 2.001, "from -1 to 2"),
    ("real", float("nan"), "finite"),
    ("real", INFINITY, "finite"),
    ("real", -INFINITY, "finite"),
    ("real", True, "finite"),
    ("real", "0", "finite"),
    ("text", "seventeen bytes !", "at most 16 bytes"),
    ("text", "ä" * 9, "at most 16 bytes"),
    ("text", "\ud800", "UTF-8"),
    ("text", b"bytes", "UTF-8"),
    ("text", None, "UTF-8"),
    ("choice", "west", "north, south"),
    ("choice", 2, "north, south"),
    ("choice", -1, "north, south"),
    ("choice", True, "north, south"),
    ("choice", [], "north, south"),
    ("words", ("a", "b", "c"), "at most 2 items"),
    ("words", ["a", "b", "c"], "at most 2 items"),
    ("words", "ab", "at most 2 items"),
    ("some", 1, "from 2 to 8"),
    ("some", 9, "from 2 to 8"),
    ("parts", (), "1 to 2 items"),
    ("parts", [], "1 to 2 items"),
    ("parts", (True, True, True), "1 to 2 items"),
    ("inner", 7, "Inner"),
    ("inner", None, "Inner"),
    ("data", b"12345", "at most 4 bytes"),
    ("data", "1234", "at most 4 bytes"),
]


def with_field(name: str, value: Any) -> Sample:
    return Sample(**{other: value if other == name else getattr(VALID, other) for other in NAMES})


def refusal_of(action: Any, *arguments: Any) -> str:
    with pytest.raises(ProtocolError) as caught:
        action(*arguments)
    assert caught.value.code == "malformed"
    return caught.value.text


def test_wire_values_are_plain_and_in_order() -> None:
    assert pack(VALID) == WIRE
    assert unpack(Sample, WIRE) == VALID


@pytest.mark.parametrize(("name", "value", "bound"), WRONG)
def test_value_out_of_bounds_is_refused_both_ways_by_name(name: str, value: Any, bound: str) -> None:
    received = [value if other == name else item for other, item in zip(NAMES, WIRE, strict=True)]
    for text in (refusal_of(pack, with_field(name, value)), refusal_of(unpack, Sample, received)):
        assert text.startswith(f"Sample.{name}")
        assert bound in text


@pytest.mark.parametrize(
    ("name", "value"),
    [("text", SECRET + "!"), ("choice", SECRET), ("words", (SECRET,)), ("data", SECRET.encode())],
)
def test_refusal_does_not_repeat_what_was_said(name: str, value: Any) -> None:
    assert SECRET not in refusal_of(pack, with_field(name, value))


def test_what_only_python_can_hold_is_refused() -> None:
    """numpy numbers and lists look right until another type is compared or hashed."""
    for name, value in (
        ("number", np.int64(5)),
        ("words", ["a"]),
        ("data", bytearray(b"1")),
        ("inner", VALID),
    ):
        assert refusal_of(pack, with_field(name, value)).startswith(f"Sample.{name}")


def test_integer_stands_for_a_float_at_the_sender_only() -> None:
    packed = pack(with_field("real", 1))
    assert type(packed[2]) is float
    assert refusal_of(unpack, Sample, [*WIRE[:2], 1, *WIRE[3:]]).startswith("Sample.real")


def test_nested_field_is_named_by_its_own_message() -> None:
    assert refusal_of(unpack, Sample, [*WIRE[:8], [8], WIRE[9]]).startswith("Inner.number")


def test_items_of_an_array_are_checked_both_ways() -> None:
    for item in ("12345", 5, None):
        for text in (
            refusal_of(pack, with_field("words", ("a", item))),
            refusal_of(unpack, Sample, [*WIRE[:5], ["a", item], *WIRE[6:]]),
        ):
            assert text == "Sample.words[] must be UTF-8 text of at most 4 bytes"


@pytest.mark.parametrize("values", [[], WIRE[:-1], [*WIRE, 0]])
def test_number_of_fields_is_exact(values: list[Any]) -> None:
    assert refusal_of(unpack, Sample, values) == "Sample must have 9 fields, without empty arrays at their end"


@dataclass(frozen=True, slots=True)
class Ending:
    """Arrays at the end, the first of them behind another field."""

    words: Annotated[tuple[Annotated[str, Text(4)], ...], Count(3)]
    number: Annotated[int, Count(9)]
    first: Annotated[tuple[bool, ...], Count(3)]
    second: Annotated[tuple[bool, ...], Count(3)]
    data: Annotated[bytes, Bytes(4)]


def test_empty_arrays_at_the_end_are_left_out_and_only_these() -> None:
    made: list[tuple[Ending, list[Any]]] = [
        (Ending((), 1, (), (), b""), [[], 1, b""]),
        (Ending((), 1, (True,), (), b"x"), [[], 1, [True], b"x"]),
        (Ending((), 1, (), (True,), b""), [[], 1, [], [True], b""]),
    ]
    for message, wire in made:
        assert pack(message) == wire
        assert unpack(Ending, wire) == message
    refused: list[list[Any]] = [
        [[], b""],
        [[], 1, [], b""],
        [[], 1, [True], [], b""],
        [[], 1, [], [], b""],
        [1, [True], b""],
    ]
    for wire in refused:
        refusal_of(unpack, Ending, wire)


@given(messages())
def test_any_message_survives(message: Message) -> None:
    packed = pack(message)
    assert unpack(type(message), packed) == message


@pytest.mark.parametrize("kind", TAGS, ids=lambda kind: kind.__name__)
def test_field_of_any_message_refuses_another_type(kind: type[Message]) -> None:
    for field in range(len(fields(kind))):
        values: list[Any] = [object()] * len(fields(kind))
        values[field] = {}
        refusal_of(unpack, kind, values)


def test_welcome_carries_a_whole_hello() -> None:
    hello = Hello("cloud", "m", "t", 10, "s", "e", ("race",), 0.5, 0.0, (2,), "l", "near")
    assert pack(Welcome(hello, 1, 2, 3))[0] == pack(hello)


def test_type_without_a_bound_is_an_error_of_its_author() -> None:
    @dataclass(frozen=True, slots=True)
    class Unbounded:
        number: int

    @dataclass(frozen=True, slots=True)
    class Mixed:
        number: Annotated[int, Text(3)]

    for value in (Unbounded(1), Mixed(1)):
        with pytest.raises(TypeError, match="number"):
            pack(value)


OPEN = Open(
    1, "speculative", "q", "q", 1, 0, 0.0, "race", "race", 8, True, 1.0, "device", "both", run_ahead=1, max_tokens=1
)
OPEN_NAMES = [field.name for field in fields(Open)]


def test_an_answer_without_room_for_a_draft_is_refused() -> None:
    """A cloud that served one would ask how many drafts at most 0 drafts are, every time it looks at the clock."""
    values = pack(OPEN)
    assert unpack(Open, values) == OPEN
    values[OPEN_NAMES.index("run_ahead")] = 0
    assert refusal_of(unpack, Open, values) == "Open.run_ahead must be an integer from 1 to 4096"
    assert refusal_of(pack, replace(OPEN, run_ahead=0)).startswith("Open.run_ahead")


@pytest.mark.parametrize("temperature", [4e-38, 1e-40, 0.005, 2.1, -0.1, math.nan, math.inf])
def test_temperatures_that_nobody_draws_at_are_refused(temperature: float) -> None:
    """Noise to so small a power is 1 or nothing in float32: one such answer would end all answers of its pass."""
    values = pack(OPEN)
    values[OPEN_NAMES.index("temperature")] = temperature
    assert "Open.temperature must be 0 or a finite number from 0.01 to 2" in refusal_of(unpack, Open, values)
    assert refusal_of(pack, replace(OPEN, temperature=temperature)).startswith("Open.temperature")


@pytest.mark.parametrize("temperature", [0.0, 0.01, 1.0, 2.0])
def test_all_others_are_not(temperature: float) -> None:
    assert unpack(Open, pack(replace(OPEN, temperature=temperature))).temperature == temperature
