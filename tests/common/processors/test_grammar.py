"""JSON schemas bind what may follow, forwards and backwards."""

from __future__ import annotations

import json
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from llguidance import LLMatcher

from common.configuration.settings import EMBEDDED_TOKENIZER
from common.engine.model.tokenizer import Tokenizer
from common.processors.calls import ProcessorError, closed
from common.processors.grammar import Grammar, Grammars
from common.processors.trial import TrialFailed, Unwanted, json_grammar, why_not
from tests.common.processors.schemas import CAR, COSTLY, HOSTILE

TOKENIZER = Tokenizer.load(str(EMBEDDED_TOKENIZER))
EOS = (TOKENIZER.eos or 0,)
TOKENS = Grammars(TOKENIZER, TOKENIZER.size)
A, B = ({"type": "object", "properties": {name: {"type": "integer"}}, "required": [name]} for name in "ab")
OF_A, OF_B = ({"type": "object", "properties": {"x": schema}, "required": ["x"]} for schema in (A, B))


def compiled(schema: object = CAR, eos: tuple[int, ...] = EOS) -> Grammar:
    return TOKENS.compile(json_grammar(json.dumps(schema)), eos)


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


class TestClosing:
    """Schemas of the same object have the members of all of them, however they are put together."""

    @pytest.mark.parametrize(
        "schema",
        [
            {"$defs": {"A": A}, "allOf": [{"$ref": "#/$defs/A"}, B]},
            {"$defs": {"A": A, "Q": {"$ref": "#/$defs/A"}}, "allOf": [{"anyOf": [{"$ref": "#/$defs/Q"}]}, B]},
            OF_A | {"definitions": {"A": A}, "properties": {"x": {"allOf": [{"$ref": "#/definitions/A"}, B]}}},
            {"$defs": {"A": A}, "$ref": "#/$defs/A"} | B,
            {"$defs": {"B": B}, "oneOf": [{"$ref": "#/$defs/B"}]} | A,
            {
                "type": "object",
                "properties": {"x": A, "y": {"allOf": [{"$ref": "#/properties/x"}, B]}},
                "required": ["y"],
            },
            A | {"oneOf": [B]},
            A | {"anyOf": [B]},
            {"anyOf": [A], "oneOf": [B]},
            {"required": ["b"], "anyOf": [A]},
            OF_A | {"oneOf": [OF_B]},
            {"type": "array", "minItems": 1, "items": A, "allOf": [{"items": B}]},
            A | {"required": ["a", "b"]},
            A | {"minProperties": 2},
        ],
    )
    def test_does_not_shut_out_what_a_schema_asks_for(self, schema: dict[str, Any]) -> None:
        for each in (schema, closed(schema)):
            assert not LLMatcher.validate_grammar(json_grammar(json.dumps(each)))


class TestRefusals:
    @pytest.mark.parametrize("name", HOSTILE)
    def test_a_schema_that_can_not_be_followed_is_one_sentence(self, name: str) -> None:
        with pytest.raises(ValueError) as refused:
            compiled(HOSTILE[name]).allowed([])
        assert 0 < len(str(refused.value)) < 300 and "\n" not in str(refused.value)

    def test_a_model_without_an_end_can_not_end_a_format(self) -> None:
        with pytest.raises(ValueError, match="no end-of-sequence"):
            compiled(eos=())

    def test_one_that_was_refused_is_not_tried_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        schema = {"type": "car", "title": "refused"}
        with pytest.raises(ValueError) as first:
            compiled(schema)
        monkeypatch.setattr("common.processors.grammar.why_not", None)
        with pytest.raises(ValueError) as again:
            compiled(schema)
        assert str(first.value) == str(again.value)

    def test_one_that_nobody_wants_any_more_is_given_up_with_its_process(self) -> None:
        looks: list[int] = []
        before = {child.pid for child in psutil.Process().children()}  # of other tests' fixtures

        def wanted() -> bool:
            looks.extend(child.pid for child in psutil.Process().children() if child.pid not in before)
            return not looks

        with pytest.raises(Unwanted):
            TOKENS.compile(json_grammar(json.dumps(HOSTILE["an intersection"] | {"title": "unwanted"})), EOS, wanted)
        assert looks and not any(psutil.pid_exists(child) for child in looks)

    def test_the_same_is_compiled_once_whoever_asks_meanwhile(self, monkeypatch: pytest.MonkeyPatch) -> None:
        tried: list[str] = []

        def noting(grammar: str, wanted: Callable[[], bool]) -> str | None:
            tried.append(grammar)
            return why_not(grammar, wanted)

        monkeypatch.setattr("common.processors.grammar.why_not", noting)
        with ThreadPoolExecutor(6) as pool:
            made = [pool.submit(compiled, CAR | {"title": f"for {number % 2}"}) for number in range(6)]
            assert len({tuple(each.result().allowed([]).tolist()) for each in made}) == 1
        assert len(tried) == 2

    def test_a_schema_that_is_larger_than_a_pipe_holds_is_tried_in_full(self, monkeypatch: pytest.MonkeyPatch) -> None:
        patient = "from common.processors import trial; trial.SECONDS = 60; trial.main()"  # on a slow machine, too
        monkeypatch.setattr("common.processors.trial.child_command", lambda module: [sys.executable, "-c", patient])
        large = {"enum": [f"{number:08}" for number in range(2**14)]}
        assert len(json.dumps(large)) > 2**17
        assert why_not(json_grammar(json.dumps(large))) is None

    def test_none_is_written_to_a_disk(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "there is no place for files"))
        assert why_not(json_grammar(json.dumps(CAR))) is None

    @pytest.mark.parametrize(
        "end", ["exit(1)", "import os; os.kill(os.getpid(), 9)"], ids=["by itself", "out of memory"]
    )
    def test_one_that_ends_before_it_has_read_all_is_a_failure(self, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("common.processors.trial.child_command", lambda module: [sys.executable, "-c", end])
        with pytest.raises(TrialFailed):
            why_not("x" * 2**20)

    @pytest.mark.parametrize("name", COSTLY)
    def test_a_costly_schema_is_followed_in_steps_that_neighbours_hardly_notice_or_ends(self, name: str) -> None:
        draw, path, steps, said = random.Random(name), list[int](), list[float](), list[str]()
        try:
            grammar = compiled(COSTLY[name])
            for _ in range(150):
                began = time.process_time()
                allowed = grammar.allowed(path).nonzero().flatten().tolist()
                steps.append(time.process_time() - began)
                path.append(draw.choice([token for token in allowed if token not in EOS] or [EOS[0]]))
                if path[-1] == EOS[0]:
                    break
        except ValueError as error:
            said.append(str(error))
        assert all(re.search(r"takes (too much work|more than) ", each) for each in said)
        assert max(steps, default=0.0) < 0.25
