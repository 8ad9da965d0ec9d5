"""JSON schemas bind what may follow, forwards and backwards."""

from __future__ import annotations

import json
import random
import time
from contextlib import suppress

import pytest

from common.model.tokenizer import Tokenizer
from common.processors.grammar import Grammar, Grammars
from common.processors.options import ProcessorError
from common.settings import EMBEDDED_TOKENIZER
from tests.common.processors.schemas import CAR, COSTLY, HOSTILE

TOKENIZER = Tokenizer.load(str(EMBEDDED_TOKENIZER))
EOS = (TOKENIZER.eos or 0,)
TOKENS = Grammars(TOKENIZER, TOKENIZER.size)


def compiled(schema: object = CAR, eos: tuple[int, ...] = EOS) -> Grammar:
    return TOKENS.compile(json.dumps(schema), eos)


def walk(grammar: Grammar, seed: int, most: int = 400) -> list[int]:
    """A random path through the grammar to an end of sequence."""
    draw, path = random.Random(seed), list[int]()
    while len(path) < most:
        token = draw.choice(grammar.allowed(path).nonzero().flatten().tolist())
        if token in EOS:
            return path
        path.append(token)
    return path


class TestFollowing:
    @pytest.mark.parametrize("seed", range(8))
    def test_whatever_is_drawn_ends_as_the_schema_says(self, seed: int) -> None:
        value = json.loads(TOKENIZER.decode(walk(compiled(), seed)))
        assert value.keys() == {"name", "electric", "doors"}
        assert len(value["name"]) <= 8 and isinstance(value["electric"], bool) and value["doors"] in (3, 5)

    def test_a_path_that_was_rolled_back_leaves_no_trace(self) -> None:
        wandering, draw = compiled(), random.Random(3)
        paths = [walk(compiled(), seed) for seed in range(4)]
        for _ in range(60):
            path = draw.choice(paths)
            prefix = path[: draw.randrange(len(path) + 1)]
            assert wandering.allowed(prefix).equal(compiled().allowed(prefix))

    def test_an_answer_that_left_the_format_is_an_error(self) -> None:
        with pytest.raises(ProcessorError, match="left its format"):
            compiled().allowed(TOKENIZER.encode("Hello"))

    def test_every_end_of_sequence_of_the_answer_ends_it(self) -> None:
        other = TOKENIZER.encode("x")[0]
        path = walk(compiled(), 1)
        allowed = compiled(eos=(*EOS, other)).allowed(path)
        assert set(allowed.nonzero().flatten().tolist()) == {*EOS, other}

    def test_answers_with_the_same_schema_do_not_disturb_each_other(self) -> None:
        first, second = compiled(), compiled()
        path = walk(first, 5)
        assert second.allowed([]).equal(compiled().allowed([]))
        assert first.allowed(path).equal(second.allowed(path))


class TestRefusals:
    @pytest.mark.parametrize("name", HOSTILE)
    def test_a_schema_that_can_not_be_followed_is_one_sentence(self, name: str) -> None:
        with pytest.raises(ValueError) as refused:
            compiled(HOSTILE[name]).allowed([])
        assert 0 < len(str(refused.value)) < 300 and "\n" not in str(refused.value)

    def test_a_model_without_an_end_can_not_end_a_format(self) -> None:
        with pytest.raises(ValueError, match="no end-of-sequence"):
            compiled(eos=())

    @pytest.mark.parametrize("name", COSTLY)
    def test_a_costly_schema_is_followed_in_steps_that_neighbours_hardly_notice_or_ends(self, name: str) -> None:
        draw, path, steps = random.Random(name), list[int](), list[float]()
        with suppress(ValueError):
            grammar = compiled(COSTLY[name])
            for _ in range(150):
                began = time.process_time()
                allowed = grammar.allowed(path).nonzero().flatten().tolist()
                steps.append(time.process_time() - began)
                path.append(draw.choice([token for token in allowed if token not in EOS] or [EOS[0]]))
                if path[-1] == EOS[0]:
                    break
        assert max(steps, default=0.0) < 0.25
