"""Biases, penalties, formats, truncation and log-probabilities on two real daemons."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel, Field

from common.configuration.settings import EMBEDDED_TOKENIZER
from common.engine.model.tokenizer import Tokenizer
from scripts.daemons import Pair, free_port
from scripts.netlab.faulty_proxy import FaultyProxy, Line
from tests.common.processors.schemas import CAR, HOSTILE

QUESTION = "What is the best-selling game of the kind I like?"
LENGTH = 24
TOKENIZER = Tokenizer.load(str(EMBEDDED_TOKENIZER))
SCHEMA = {"type": "json_schema", "json_schema": {"name": "car", "schema": CAR}}
MODES: tuple[dict[str, object], ...] = (
    {"placement": "device", "method": "token-wise"},
    {"placement": "cloud"},
    {"placement": "mirrored"},
    {"placement": "greedy"},
    {"placement": "device", "entries": 4},
    {"method": "fetch-text"},
)
BY_ITSELF = MODES[1], MODES[4]  # of a single change: where the other side decides, and where certificates fail
CHANGES: dict[str, dict[str, object]] = {
    "penalties": {
        "presence_penalty": 2.0,
        "frequency_penalty": 1.0,
        "logit_bias": {str(TOKENIZER.encode(" x")[-1]): 20},
        "temperature": 1.0,
    },
    "truncation": {"top_p": 0.6, "temperature": 1.3},
    "everything": {
        "response_format": SCHEMA,
        "logit_bias": {str(TOKENIZER.encode("a")[0]): 4},
        "frequency_penalty": 1.0,
        "presence_penalty": 0.5,
        "top_p": 0.9,
        "temperature": 0.7,
        "max_tokens": 60,
    },
}


class Game(BaseModel):
    kind: Literal["horror", "puzzle", "racing"]
    players: int = Field(ge=1, le=4)


@pytest.fixture(scope="module")
def pair(fresh_data: Callable[[], Path]) -> Iterator[Pair]:
    port = free_port()
    slow = Line(delay=0.005, jitter=0.02)
    with FaultyProxy(port, up=slow, down=slow, seed=3) as proxy:
        between = int(proxy.address.rpartition(":")[2])
        with Pair(fresh_data(), {"privacy": "balanced", "patience": 60.0}, between=between, cloud_port=port) as pair:
            yield pair


@pytest.fixture(scope="module")
def client(pair: Pair) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{pair.url}/v1", api_key="none", max_retries=0)


def answer(pair: Pair, **fields: Any) -> dict[str, Any]:
    return pair.complete(QUESTION, **{"max_tokens": LENGTH, "seed": 20} | fields)


def text(response: dict[str, Any]) -> str:
    found: str = response["choices"][0]["message"]["content"]
    return found


class TestIdentity:
    @pytest.mark.parametrize("change", CHANGES)
    def test_every_mode_gives_the_same_changed_answer(self, pair: Pair, change: str) -> None:
        fields = CHANGES[change]
        expected = answer(pair, **fields)
        limits = {name: fields[name] for name in ("temperature", "max_tokens") if name in fields}
        assert text(expected) != text(answer(pair, **limits))
        for mode in MODES if change == "everything" else BY_ITSELF:
            response = answer(pair, **fields, **mode)
            assert text(response) == text(expected), mode
            assert (response["dragon"]["degraded"], response["dragon"]["disagreements"]) == ([], 0)


class TestEffects:
    def test_formats_hold_for_any_seed_and_several_answers_at_a_time(self, pair: Pair) -> None:
        def ask(seed: int) -> dict[str, Any]:
            return answer(pair, response_format=SCHEMA, temperature=1.0, max_tokens=80, seed=seed)

        with ThreadPoolExecutor(6) as pool:
            responses = list(pool.map(ask, range(6)))
        for response in responses:
            assert response["choices"][0]["finish_reason"] == "stop"
            value = json.loads(text(response))
            assert value.keys() == {"name", "electric", "doors"} and value["doors"] in (3, 5)
        assert len(set(map(text, responses))) > 3

    def test_the_openai_client_parses_answers(self, client: openai.OpenAI) -> None:
        messages: list[Any] = [{"role": "user", "content": QUESTION}]
        answer = client.chat.completions.parse(model="dragon", messages=messages, response_format=Game, max_tokens=80)
        parsed = answer.choices[0].message.parsed
        assert isinstance(parsed, Game)
        assert parsed.kind in ("horror", "puzzle", "racing")

    def test_a_nucleus_of_one_token_is_the_most_probable_one(self, pair: Pair) -> None:
        alone = {"sources": "device"}
        assert text(answer(pair, temperature=1.0, top_p=0.001, **alone)) == text(answer(pair, **alone))

    def test_refusals_name_the_field_and_leave_the_daemons_working(self, pair: Pair, client: openai.OpenAI) -> None:
        hostile = {"name": "x", "schema": HOSTILE["an intersection"]}
        refusals: tuple[tuple[dict[str, object], str], ...] = (
            ({"logit_bias": {str(TOKENIZER.size + 5000): 1}}, "logit_bias"),
            ({"response_format": {"type": "json_schema", "json_schema": hostile}}, "response_format"),
            ({"logprobs": True, "placement": "cloud"}, "logprobs"),
        )
        for fields, param in refusals:
            with pytest.raises(openai.BadRequestError) as refused:
                client.chat.completions.create(
                    model="dragon", messages=[{"role": "user", "content": QUESTION}], extra_body=fields
                )
            assert refused.value.param == param
        assert text(answer(pair))


class TestLogprobs:
    def test_they_are_those_of_one_process_with_all_documents(self, pair: Pair) -> None:
        """The device that fetched the cloud's documents has both whole mixtures; otherwise it has their lists."""
        asked = {"logprobs": True, "top_logprobs": 5, "temperature": 1.0}
        for extra in ({}, {"presence_penalty": 1.0}, {"sources": "device"}):
            apart, together = (
                answer(pair, **asked, **extra, **mode)["choices"][0]["logprobs"]["content"]
                for mode in ({}, {} if "sources" in extra else {"method": "fetch-text"})
            )
            assert [entry["token"] for entry in apart] == [entry["token"] for entry in together]
            for one, other in zip(apart, together, strict=True):
                assert one["logprob"] == pytest.approx(other["logprob"], abs=2e-3)
                likely = [each for each in other["top_logprobs"] if each["logprob"] > math.log(1e-3)]
                for mine, theirs in zip(one["top_logprobs"], likely, strict=False):
                    assert mine["token"] == theirs["token"]
                    assert mine["logprob"] == pytest.approx(theirs["logprob"], abs=5e-3)

    def test_at_temperature_0_the_token_is_the_likeliest(self, pair: Pair) -> None:
        response = answer(pair, logprobs=True, top_logprobs=20)
        content = response["choices"][0]["logprobs"]["content"]
        assert "".join(entry["token"] for entry in content).strip() == text(response)
        for entry in content:
            assert entry["token"] == entry["top_logprobs"][0]["token"]
            assert entry["logprob"] == entry["top_logprobs"][0]["logprob"] <= 0
            assert bytes(entry["bytes"]).decode() == entry["token"]
            assert sum(math.exp(each["logprob"]) for each in entry["top_logprobs"]) < 1.001
            assert len(entry["top_logprobs"]) == 20

    def test_the_openai_client_reads_them_in_every_format(self, client: openai.OpenAI) -> None:
        messages: list[Any] = [{"role": "user", "content": QUESTION}]
        limits: dict[str, Any] = {"model": "dragon", "seed": 4, "temperature": 1.0}
        whole = client.chat.completions.create(messages=messages, logprobs=True, top_logprobs=2, max_tokens=9, **limits)
        assert whole.choices[0].logprobs is not None and whole.choices[0].logprobs.content is not None
        told = [(entry.token, entry.logprob) for entry in whole.choices[0].logprobs.content]

        streamed = []
        for chunk in client.chat.completions.create(
            messages=messages, logprobs=True, top_logprobs=2, max_tokens=9, stream=True, **limits
        ):
            for choice in chunk.choices:
                if choice.logprobs is not None and choice.logprobs.content is not None:
                    streamed += [(entry.token, entry.logprob) for entry in choice.logprobs.content]
        assert streamed == told

        response = client.responses.create(
            input=QUESTION,
            include=["message.output_text.logprobs"],
            top_logprobs=2,
            max_output_tokens=9,
            model="dragon",
            temperature=1.0,
            extra_body={"seed": 4},
        )
        (message,) = response.output
        assert message.type == "message" and message.content[0].type == "output_text"
        assert [(entry.token, entry.logprob) for entry in message.content[0].logprobs or ()] == told

        completion = client.completions.create(
            prompt=f"\nQuestion: {QUESTION}\nAnswer:", logprobs=3, max_tokens=9, **limits
        )
        listed = completion.choices[0].logprobs
        assert listed is not None and listed.tokens and listed.text_offset is not None and listed.top_logprobs
        answered = completion.choices[0].text
        for token, offset in zip(listed.tokens, listed.text_offset, strict=True):
            assert answered[offset : offset + len(token)] == token
        assert all(len(top) == 3 for top in listed.top_logprobs)
