"""Clients that people use: the official OpenAI client and `dragon ask`, against real daemons."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from openai import OpenAI

from common.library.embedder import SentenceTransformerEmbedder
from device.active_request import REFUSAL, SHORTEST_RUN
from scripts.daemons import PATIENTLY, Pair, dragon
from tests.daemons.streaming import asked_again, late

QUESTION = "Where is my dance class?"


@pytest.fixture(scope="module")
def pair(fresh_data: Callable[[], Path]) -> Iterator[Pair]:
    with Pair(fresh_data(), device={"patience": 60.0}) as pair:
        yield pair


@pytest.fixture(scope="module")
def client(pair: Pair) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{pair.url}/v1", api_key="unused", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def answer(client: OpenAI) -> str:
    """The whole answer, which every other way of asking must give, too."""
    response = client.chat.completions.create(model="dragon", messages=[{"role": "user", "content": QUESTION}])
    content = response.choices[0].message.content
    assert content
    assert response.choices[0].finish_reason == "stop"
    assert response.usage is not None
    assert response.usage.completion_tokens > 3
    return content


def test_streaming_gives_the_same_answer_in_pieces(client: OpenAI, answer: str) -> None:
    stream = client.chat.completions.create(
        model="dragon", messages=[{"role": "user", "content": QUESTION}], stream=True
    )
    pieces = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
    assert "".join(pieces) == answer
    assert sum(map(bool, pieces)) > 3


def test_responses_give_it_too(client: OpenAI, answer: str) -> None:
    assert client.responses.create(model="dragon", input=QUESTION).output_text == answer
    with client.responses.stream(model="dragon", input=QUESTION) as stream:
        assert stream.get_final_response().output_text == answer


def test_completions_take_the_prompt_as_it_is(client: OpenAI, answer: str) -> None:
    prompt = f"\nQuestion: {QUESTION}\nAnswer:"
    response = client.completions.create(model="dragon", prompt=prompt, extra_body={"documents": 4})
    assert response.choices[0].text.strip() == answer.strip()


def test_token_ids_are_a_prompt_like_their_text(client: OpenAI, pair: Pair) -> None:
    prompt = f"\nQuestion: {QUESTION}\nAnswer:"
    prompts: list[Any] = [prompt, tokenized(pair, prompt)]
    by_text, by_ids = (client.completions.create(model="dragon", prompt=each).choices[0].text for each in prompts)
    assert by_text == by_ids


def test_token_ids_that_no_text_has_are_read_as_they_are(client: OpenAI, pair: Pair) -> None:
    together = tokenized(pair, "Dance class?")
    apart = [token for part in ("Dan", "ce ", "cla", "ss?") for token in tokenized(pair, part)]

    def read(prompt: list[int]) -> int:
        answer = client.completions.create(model="dragon", prompt=prompt, max_tokens=1, extra_body={"documents": 2})
        assert answer.usage is not None
        return answer.usage.prompt_tokens

    assert len(apart) > len(together)
    assert read(apart) - read(together) == 2 * (len(apart) - len(together))  # both sides read the query


def test_an_answer_that_is_begun_goes_on(client: OpenAI, answer: str) -> None:
    *words, last = answer.split(" ")
    turns: list[Any] = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": " ".join(words)}]
    response = client.chat.completions.create(model="dragon", messages=turns)
    assert response.choices[0].message.content == f" {last}"


def test_several_answers_are_those_of_their_seeds(client: OpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    several = client.chat.completions.create(model="dragon", messages=messages, n=3, seed=-1, temperature=1.5)
    assert len({choice.message.content for choice in several.choices}) > 1
    for choice in several.choices:
        seed = (choice.model_extra or {})["dragon"]["seed"]
        alone = client.chat.completions.create(model="dragon", messages=messages, seed=seed, temperature=1.5)
        assert alone.choices[0].message.content == choice.message.content


def test_embeddings_are_the_librarys(client: OpenAI, pair: Pair) -> None:
    texts = ["My dance class is at Delthcine House.", "Where is my dance class?", "word " * 400]
    raw = client.embeddings.with_raw_response.create(model="dragon", input=texts)
    vectors = np.array([each.embedding for each in raw.parse().data])
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3)
    similarity = vectors @ vectors.T
    assert similarity[0, 1] > similarity[0, 2]
    assert "1 texts" in raw.headers["x-dragon-notes"]
    assert np.allclose(vectors, SentenceTransformerEmbedder().encode(texts), atol=1e-4)


def tokenized(pair: Pair, text: str) -> list[int]:
    ids: list[int] = httpx.post(f"{pair.url}/tokenize", json={"content": text}, **PATIENTLY).json()["tokens"]
    return ids


def test_a_stop_string_ends_the_answer_on_both_sides(client: OpenAI, pair: Pair, answer: str) -> None:
    stop = answer.split()[2]
    response = client.chat.completions.create(
        model="dragon", messages=[{"role": "user", "content": QUESTION}], stop=[stop]
    )
    assert response.choices[0].message.content == answer[: answer.index(stop)]
    assert response.choices[0].finish_reason == "stop"
    assert pair.status()["active"] == 0


@pytest.mark.parametrize("sampler", ["race", "paper"])
def test_either_sampler_finds_the_likeliest_token_at_temperature_0(client: OpenAI, answer: str, sampler: str) -> None:
    response = client.chat.completions.create(
        model="dragon",
        messages=[{"role": "user", "content": QUESTION}],
        temperature=0.0,
        extra_body={"sampler": sampler},
    )
    assert response.choices[0].message.content == answer


def test_the_command_line_gives_it_too(pair: Pair, answer: str) -> None:
    def ask() -> dict[str, Any]:
        asked = dragon("ask", QUESTION, "--json", "--url", pair.url)
        assert asked.returncode == 0, asked.stderr
        result: dict[str, Any] = json.loads(asked.stdout)
        return result

    result = asked_again(ask, late)
    assert result["answer"] == answer
    report = result["dragon"]
    assert {source["side"] for source in report["sources"]} == {"device", "cloud"}
    assert all(abs(sum(row) - 1.0) < 0.01 for row in report["attribution"]), "a token's shares are all there"
    assert report["cloud"]["acceptance"] is not None
    streamed = dragon("ask", QUESTION, "--report", "--url", pair.url)
    assert streamed.stdout.strip() == answer.strip()
    assert "attribution" in streamed.stderr


def test_the_report_tells_which_drafts_were_right(client: OpenAI, pair: Pair) -> None:
    report = pair.complete(QUESTION, temperature=0.0, seed=1)["dragon"]
    for column, side in enumerate(("device", "cloud")):
        drafts = [row[column] for row in report["accepted"]]
        assert drafts.count(True) == report[side]["accepted"]
        assert drafts.count(False) == report[side]["rollbacks"]
    assert len(report["accepted"]) == report["tokens"]


class TestUnmatched:
    """Questions that no document comes close to."""

    FAR = "How many planets orbit the star Proxima Centauri?"

    def test_documents_of_either_side_count(self, pair: Pair) -> None:
        near = pair.complete(QUESTION, max_tokens=2)["dragon"]
        assert not near["unmatched"] and near["closest"] > 0.4
        both, device, cloud = (
            pair.complete("Which medicine is good?", max_tokens=2, sources=sources)["dragon"]["closest"]
            for sources in ("both", "device", "cloud")
        )
        assert both == max(device, cloud) and device != cloud

    def test_it_is_said_before_the_answer(self, pair: Pair, client: OpenAI) -> None:
        answer = pair.complete(self.FAR, max_tokens=4, unmatched="warn")
        report = answer["dragon"]
        assert report["unmatched"] and not report["refused"]
        stream = client.chat.completions.create(
            model="dragon",
            messages=[{"role": "user", "content": self.FAR}],
            max_tokens=4,
            stream=True,
            extra_body={"unmatched": "warn"},
        )
        told = [
            "doubt" if doubt else "text"
            for chunk in stream
            for doubt in ["doubt" in (getattr(chunk, "dragon", None) or {})]
            if chunk.choices and (doubt or chunk.choices[0].delta.content)
        ]
        assert told[0] == "doubt" and set(told[1:]) == {"text"}
        asked = dragon("ask", self.FAR, "--max-tokens", "4", "--unmatched", "warn", "--url", pair.url)
        assert asked.returncode == 0, asked.stderr
        assert asked.stderr.startswith("No document is close to the question: ")
        assert asked.stdout.strip() == answer["choices"][0]["message"]["content"].strip()

    @pytest.mark.parametrize("fields", [{}, {"sources": "device"}, {"sources": "cloud"}, {"temperature": 1.0}], ids=str)
    def test_its_documents_take_no_part(self, pair: Pair, fields: dict[str, Any]) -> None:
        """The answer is that of a question without documents, and quotes none."""
        fields = {"seed": 7, "max_tokens": 8, "unmatched": "warn"} | fields
        answer, without = pair.complete(self.FAR, **fields), pair.complete(self.FAR, **fields, documents=0)
        assert answer["choices"] == without["choices"]
        report = answer["dragon"]
        assert report["unmatched"] and report["closest"] < 0.4
        assert (report["sources"], report["citations"], report["seed"]) == ([], [], 7)
        assert not without["dragon"]["unmatched"]

    def test_documents_that_were_chosen_take_part(self, pair: Pair) -> None:
        """However far they are from the question."""
        chosen = {"sources": "device", "device_documents": ["rabbit*"]}
        report = pair.complete(self.FAR, max_tokens=2, unmatched="warn", **chosen)["dragon"]
        assert not report["unmatched"]
        assert [source["title"] for source in report["sources"]] == ["rabbit"]

    def test_where_that_is_wanted_there_is_no_answer(self, pair: Pair) -> None:
        refused = pair.complete(self.FAR, unmatched="refuse")
        (choice,) = refused["choices"]
        assert choice["message"]["content"] == REFUSAL
        report = refused["dragon"]
        assert (choice["finish_reason"], report["tokens"], report["refused"]) == ("stop", 1, True)
        assert report["sources"] == report["attribution"] == []
        answered = pair.complete(QUESTION, unmatched="refuse", max_tokens=4)["dragon"]
        assert (answered["refused"], answered["tokens"]) == (False, 4)

    def test_a_format_is_kept_and_silence_obeyed(self, pair: Pair) -> None:
        wanted = {"unmatched": "refuse", "response_format": {"type": "json_object"}, "max_tokens": 4}
        report = pair.complete(self.FAR, **wanted)["dragon"]
        assert report["unmatched"] and not report["refused"]
        assert any("a refusal has neither" in note for note in report["notes"])
        silent = pair.complete(self.FAR, unmatched="answer", max_tokens=2)["dragon"]
        assert not silent["unmatched"]


def test_an_answer_that_repeats_itself_is_ended(pair: Pair) -> None:
    """The bias makes one token all there is."""
    (token,) = tokenized(pair, "the")[-1:]
    wanted = {"logit_bias": {str(token): 100}, "max_tokens": 200}
    ended = pair.complete(QUESTION, end_repetition=True, **wanted)
    assert (ended["choices"][0]["finish_reason"], ended["dragon"]["tokens"]) == ("stop", SHORTEST_RUN)
    assert any("had started to repeat itself" in note for note in ended["dragon"]["notes"])
    whole = pair.complete(QUESTION, end_repetition=False, **wanted)
    assert (whole["choices"][0]["finish_reason"], whole["dragon"]["tokens"]) == ("length", 200)


def test_a_format_may_repeat_itself(pair: Pair) -> None:
    zeros: dict[str, Any] = {"type": "array", "items": {"const": 0}, "minItems": 60, "maxItems": 60}
    wanted = {"type": "json_object", "schema": zeros}
    answer = pair.complete(QUESTION, end_repetition=True, response_format=wanted, max_tokens=400)["choices"][0]
    assert (answer["finish_reason"], json.loads(answer["message"]["content"])) == ("stop", [0] * 60)
