"""Formats beside one chat answer, for the OpenAI client and others: several answers, responses, vectors, tokens."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from openai.types.responses import ResponseCompletedEvent, ResponseIncompleteEvent

from device.http.server import HttpServer
from tests.device.conftest import Serve, openai_client
from tests.device.table_engine import EMBEDDER, MODEL, WAIT, TableEngine

QUESTION: list[Any] = [{"role": "user", "content": "one two"}]


@pytest.fixture
def http(server: HttpServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=WAIT, trust_env=False) as client:
        yield client


class TestSeveralAnswers:
    def test_whole(self, client: openai.OpenAI) -> None:
        answer = client.completions.create(model="dragon", prompt=["a b", "c"], n=2, temperature=1.0)
        assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
        assert [choice.text for choice in answer.choices] == ["a b", "a b", "c", "c"]
        assert answer.usage is not None
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 6)  # a prompt counts once
        reports = [(choice.model_extra or {})["dragon"] for choice in answer.choices]
        assert [report["pieces"] for report in reports] == [["a", " b"], ["a", " b"], ["c"], ["c"]]

    def test_streamed_by_index(self, client: openai.OpenAI) -> None:
        stream = client.chat.completions.create(
            model="dragon", messages=QUESTION, n=3, stream=True, stream_options={"include_usage": True}
        )
        *chunks, last = list(stream)
        texts, roles, reasons = ["", "", ""], [0, 0, 0], [0, 0, 0]
        for chunk in chunks:
            (choice,) = chunk.choices
            texts[choice.index] += choice.delta.content or ""
            roles[choice.index] += choice.delta.role == "assistant"
            reasons[choice.index] += choice.finish_reason == "stop"
        assert (texts, roles, reasons) == (["one two"] * 3, [1] * 3, [1] * 3)
        assert last.usage is not None
        assert last.usage.completion_tokens == 6

    def test_more_than_run_at_a_time_come_one_after_another(self, serve: Serve, engine: TableEngine) -> None:
        with openai_client(serve(max_active=1, max_waiting=3)) as client:
            answer = client.completions.create(model="dragon", prompt="a", n=4)
            assert len(answer.choices) == len(engine.generations) == 4
            with pytest.raises(openai.BadRequestError):
                client.completions.create(model="dragon", prompt="a", n=5)

    def test_one_that_fails_ends_all(self, client: openai.OpenAI, engine: TableEngine) -> None:
        with pytest.raises(openai.InternalServerError):
            client.completions.create(model="dragon", prompt=["a b c", "crash now"])


class TestWaiting:
    def test_an_answer_waits_for_a_place(self, serve: Serve, engine: TableEngine) -> None:
        engine.allowed = 0
        with openai_client(serve(max_active=1)) as client, ThreadPoolExecutor(2) as pool:
            first = pool.submit(client.completions.create, model="dragon", prompt="first")
            running = engine.generation()
            second = pool.submit(client.completions.create, model="dragon", prompt="second")
            running.allow(1)
            assert first.result().choices[0].text == "first"
            engine.generation(count=2).allow(1)
            assert second.result().choices[0].text == "second"

    def test_a_client_that_leaves_the_line_makes_room(self, serve: Serve, engine: TableEngine) -> None:
        engine.allowed = 0
        with openai_client(serve(max_active=1, max_waiting=1)) as client, ThreadPoolExecutor(1) as pool:
            first = pool.submit(client.completions.create, model="dragon", prompt="first")
            running = engine.generation()
            for _ in range(3):  # each of them in the one place
                with pytest.raises((openai.APITimeoutError, openai.RateLimitError)):
                    client.completions.create(model="dragon", prompt="next", timeout=0.2)
            running.allow(1)
            assert first.result().choices[0].text == "first"
            engine.allowed = None
            assert client.completions.create(model="dragon", prompt="last").choices[0].text == "last"
            for generation in engine.generations:
                if generation.request.prompt == "next":  # begun before it was seen that its client had left
                    assert generation.ended.wait(WAIT)  # where it was held up, because it was cancelled

    def test_who_waits_when_the_daemon_stops_is_told_so(self, serve: Serve, engine: TableEngine) -> None:
        engine.allowed = 0
        server = serve(max_active=1)
        with openai_client(server) as client, ThreadPoolExecutor(2) as pool:
            asked = [pool.submit(client.completions.create, model="dragon", prompt="x", n=3) for _ in range(2)]
            engine.generation()
            server.stop()
            for each in asked:
                with pytest.raises((openai.InternalServerError, openai.APIConnectionError)):
                    each.result()
            assert len(engine.generations) == 1

    def test_patience_for_a_place_ends(self, serve: Serve, engine: TableEngine) -> None:
        engine.allowed = 0
        with openai_client(serve(max_active=1, wait_patience=0.05)) as client, ThreadPoolExecutor(1) as pool:
            first = pool.submit(client.completions.create, model="dragon", prompt="first")
            running = engine.generation()
            with pytest.raises(openai.RateLimitError):
                client.completions.create(model="dragon", prompt="second")
            running.allow(1)
            assert first.result().choices[0].text == "first"


class TestBeginning:
    def test_an_answer_begins_with_a_word(self, client: openai.OpenAI, engine: TableEngine) -> None:
        engine.answers["q"] = [" ", "\n", " so", " it"]
        for stream in (False, True):
            asked = client.chat.completions.create(
                model="dragon", messages=[{"role": "user", "content": "q"}], stream=stream
            )
            if isinstance(asked, openai.Stream):
                assert "".join(chunk.choices[0].delta.content or "" for chunk in asked) == "so it"
            else:
                assert asked.choices[0].message.content == "so it"

    def test_what_goes_on_from_a_text_begins_as_it_does(self, client: openai.OpenAI, engine: TableEngine) -> None:
        engine.answers["q"] = [" so", " it"]
        turns: list[Any] = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "And"}]
        answer = client.chat.completions.create(model="dragon", messages=turns)
        assert answer.choices[0].message.content == " so it"
        assert engine.generation().request.prompt.endswith("Answer: And")
        assert client.completions.create(model="dragon", prompt="q").choices[0].text == " so it"


class TestResponses:
    def test_whole(self, client: openai.OpenAI, engine: TableEngine) -> None:
        response = client.responses.create(
            model="dragon", input="one two", instructions="Be brief.", metadata={"a": "b"}, temperature=0.5
        )
        assert (response.output_text, response.status, response.model) == ("one two", "completed", MODEL)
        assert (response.metadata, response.temperature, response.instructions) == ({"a": "b"}, 0.5, "Be brief.")
        assert response.usage is not None
        assert response.usage.output_tokens == 2
        assert (response.model_extra or {})["dragon"]["pieces"] == ["one", " two"]
        assert engine.generation().request.prompt == "\nBe brief.\nQuestion: one two\nAnswer:"

    def test_streamed(self, client: openai.OpenAI) -> None:
        events = list(client.responses.create(model="dragon", input=QUESTION, stream=True))
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert [event.type.removeprefix("response.") for event in events] == [
            "created",
            "in_progress",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "completed",
        ]
        assert isinstance(events[-1], ResponseCompletedEvent)
        assert events[-1].response.output_text == "one two"

    def test_cut_off(self, client: openai.OpenAI) -> None:
        response = client.responses.create(model="dragon", input="a b c", max_output_tokens=2)
        assert (response.status, response.output_text) == ("incomplete", "a b")
        assert response.incomplete_details is not None
        assert response.incomplete_details.reason == "max_output_tokens"
        *_, last = client.responses.create(model="dragon", input="a b c", max_output_tokens=2, stream=True)
        assert isinstance(last, ResponseIncompleteEvent)

    def test_output_can_be_sent_back(self, client: openai.OpenAI, engine: TableEngine) -> None:
        first = client.responses.create(model="dragon", input="hi")
        turns: list[Any] = [{"role": "user", "content": "hi"}, *first.output, {"role": "user", "content": "more"}]
        client.responses.create(model="dragon", input=turns)
        assert engine.generation().request.prompt == "\nQuestion: hi\nAnswer: hi\nQuestion: more\nAnswer:"

    @pytest.mark.parametrize("number", [b"1e999", b"-1e999", b"1" * 400 + b".0"])
    def test_what_can_not_be_given_back_is_not_taken(self, http: httpx.Client, number: bytes) -> None:
        """JSON can write these numbers, and there is no float for them."""
        for body in (
            b'"metadata": {"a": [%b]}',
            b'"tools": [{"type": "function", "name": "f", "parameters": {"a": %b}}]',
        ):
            response = http.post(
                "/v1/responses",
                content=b'{"input": "one two", ' + body % number + b"}",
                headers={"content-type": "application/json"},
            )
            assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_json")

    def test_a_failure_in_the_middle_is_the_last_event(self, client: openai.OpenAI) -> None:
        *_, last = client.responses.create(model="dragon", input="crash now", stream=True)
        assert last.type == "response.failed"
        assert last.response.error is not None
        assert "engine failed" in last.response.error.message

    @pytest.mark.parametrize(
        ("fields", "param"),
        [
            ({"previous_response_id": "resp_1"}, "previous_response_id"),
            ({"background": True}, "background"),
            ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name"),
            ({"tools": [{"type": "web_search"}]}, "tools[0]"),
            ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
            ({"text": {"format": {"type": "xml"}}}, "response_format"),
            ({"input": []}, "input"),
            ({"input": [{"type": "function_call", "name": "f"}]}, "input[0].call_id"),
            (
                {"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "1"}]},
                "input[0].arguments",
            ),
            ({"input": [{"type": "function_call_output", "call_id": "c", "output": ""}]}, "input"),
            ({"input": [{"role": "user", "content": "x"}, {"role": "tool", "tool_call_id": "c"}]}, "input[1]"),
            ({"input": [{"type": "reasoning", "summary": []}]}, "input[0]"),
            ({"input": [{"role": "assistant", "content": "x"}]}, "input"),
            ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input"),
        ],
    )
    def test_bad_requests_name_the_field(self, http: httpx.Client, fields: dict[str, Any], param: str) -> None:
        response = http.post("/v1/responses", json={"input": "x"} | fields)
        assert response.status_code == 400
        assert response.json()["error"]["param"].startswith(param)


class TestEmbeddings:
    def test_either_encoding_gives_the_same_vectors(self, client: openai.OpenAI) -> None:
        texts = [f"{number:0{1 + number % 2}}" for number in range(19)]  # more than are embedded at once
        coded = client.embeddings.create(model="dragon", input=texts)  # asks for base64
        plain = client.embeddings.create(model="dragon", input=texts, encoding_format="float")
        assert [each.embedding for each in coded.data] == [each.embedding for each in plain.data]
        assert [each.index for each in plain.data] == list(range(19))
        assert plain.data[1].embedding == [1.0, 0.0]
        assert (plain.model, plain.usage.prompt_tokens) == (EMBEDDER, sum(map(len, texts)))

    def test_base64_is_of_little_endian_floats(self, http: httpx.Client) -> None:
        value = http.post("/v1/embeddings", json={"input": "x", "encoding_format": "base64"}).json()
        vector = np.frombuffer(base64.b64decode(value["data"][0]["embedding"]), "<f4")
        assert vector.tolist() == [0.0, 1.0]

    def test_a_text_that_is_cut_is_noted(self, http: httpx.Client) -> None:
        response = http.post("/v1/embeddings", json={"input": ["x" * 21, "x"], "encoding": 1})
        notes = response.json()["dragon"]["notes"]
        assert " ".join(notes) == response.headers["x-dragon-notes"]
        assert ["'encoding'" in notes[0], "1 texts" in notes[1]] == [True, True]

    @pytest.mark.parametrize(
        ("fields", "param"),
        [
            ({"input": [[1, 2]]}, "input"),
            ({"input": [1, 2]}, "input"),
            ({"input": []}, "input"),
            ({"input": ["a", ""]}, "input"),
            ({"input": ["a"] * 2049}, "input"),
            ({"dimensions": 3}, "dimensions"),
            ({"encoding_format": "int8"}, "encoding_format"),
        ],
    )
    def test_bad_requests_name_the_field(self, http: httpx.Client, fields: dict[str, Any], param: str) -> None:
        response = http.post("/v1/embeddings", json={"input": "x"} | fields)
        assert response.status_code == 400
        assert response.json()["error"]["param"].startswith(param)


class TestPaths:
    def test_openais_answer_without_the_prefix(self, server: HttpServer) -> None:
        with openai.OpenAI(base_url=server.url, api_key="x", max_retries=0) as client:
            assert client.chat.completions.create(model="dragon", messages=QUESTION).choices[0].message.content
            assert [model.id for model in client.models.list()] == ["dragon", MODEL]
            assert client.responses.create(model="dragon", input="x").output_text == "x"

    def test_a_model_need_not_be_named(self, http: httpx.Client) -> None:
        response = http.post("/v1/chat/completions", json={"messages": QUESTION})
        assert response.status_code == 200
        assert "x-dragon-notes" not in response.headers


def test_a_method_that_a_path_does_not_have_is_told_those_that_it_has(http: httpx.Client) -> None:
    for path, allowed in (("/library/folders", "DELETE, POST"), ("/library", "GET, HEAD"), ("/v1/responses", "POST")):
        response = http.request("PATCH", path)
        assert (response.status_code, response.headers["allow"]) == (405, allowed)


class TestOpenApi:
    def test_it_has_the_schemas_in_use(self, http: httpx.Client) -> None:
        document = http.get("/openapi.json").json()
        schemas = document["components"]["schemas"]
        chat = schemas["ChatBody"]["properties"]
        assert {"messages", "n", "privacy", "temperature", "stop", "tools"} <= chat.keys()
        assert "prompt" not in chat
        assert chat["suffix"] == {"enum": [None, ""]}
        assert schemas["CompletionBody"]["properties"]["tools"] == {"enum": [None, []]}
        assert chat["tools"]["anyOf"][0]["items"] == {"$ref": "#/components/schemas/ToolBody"}
        references = [part.split('"')[0] for part in str(document).replace("'", '"').split("#/components/schemas/")[1:]]
        assert references
        assert set(references) <= schemas.keys()

    def test_fields_that_may_be_left_out_may_be_null(self, http: httpx.Client) -> None:
        tokenize = http.get("/openapi.json").json()["components"]["schemas"]["TokenizeBody"]["properties"]
        assert {"type": "null"} in tokenize["with_pieces"]["anyOf"] and "anyOf" not in tokenize["content"]
        assert http.post("/tokenize", json={"content": "a", "with_pieces": None}).status_code == 200

    def test_it_has_the_statuses_and_numbers_in_use(self, http: httpx.Client) -> None:
        paths = http.get("/openapi.json").json()["paths"]
        made = {(path, method): next(iter(each["responses"])) for path in paths for method, each in paths[path].items()}
        assert {key: status for key, status in made.items() if status != "200"} == {
            ("/library/documents", "post"): "201",
            ("/library/folders", "post"): "202",
        }
        count = next(each for each in paths["/library/search"]["get"]["parameters"] if each["name"] == "count")
        assert (count["schema"]["type"], count["schema"]["maximum"], count["required"]) == ("integer", 50, False)
