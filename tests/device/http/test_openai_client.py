"""The official OpenAI client against a real server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from device.http.server import HttpServer
from tests.device.conftest import Serve, openai_client
from tests.device.table_engine import MODEL, TableEngine


def user(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def report_of(value: BaseModel) -> dict[str, Any]:
    """The extra field `dragon`, empty where there is none."""
    report: dict[str, Any] = (value.model_extra or {}).get("dragon", {})
    return report


class TestModels:
    def test_lists_the_alias_and_the_engines_model(self, client: openai.OpenAI) -> None:
        assert [model.id for model in client.models.list()] == ["dragon", MODEL]

    def test_retrieves_it_by_name_and_alias(self, client: openai.OpenAI) -> None:
        assert client.models.retrieve(MODEL).id == MODEL
        assert client.models.retrieve("dragon").id == "dragon"

    def test_a_name_with_slashes_is_found(self, client: openai.OpenAI, engine: TableEngine) -> None:
        engine.model = "Qwen/Qwen2.5-0.5B"
        assert client.models.retrieve("Qwen/Qwen2.5-0.5B").id == "Qwen/Qwen2.5-0.5B"

    def test_another_model_is_not_found(self, client: openai.OpenAI) -> None:
        with pytest.raises(openai.NotFoundError) as error:
            client.models.retrieve("gpt-9")
        assert (error.value.code, error.value.param) == ("model_not_found", "model")

    def test_a_request_for_another_model_is_refused(self, client: openai.OpenAI) -> None:
        with pytest.raises(openai.NotFoundError) as error:
            client.completions.create(model="gpt-9", prompt="hi")
        assert (error.value.code, error.value.param) == ("model_not_found", "model")


class TestCompletions:
    def test_whole_answer_with_usage_and_report(self, client: openai.OpenAI) -> None:
        answer = client.completions.create(model="dragon", prompt="one two three", seed=5)
        assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("one two three", "stop")
        assert answer.object == "text_completion"
        assert answer.id.startswith("cmpl-")
        assert answer.model == MODEL
        assert answer.system_fingerprint == f"dragon-{MODEL}"
        assert answer.usage is not None
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (
            3,
            3,
            6,
        )
        report = report_of(answer)
        assert report["seed"] == 5
        assert report["pieces"] == ["one", " two", " three"]
        assert report["cloud"]["acceptance"] == pytest.approx(2 / 3, abs=1e-4)

    def test_the_prompt_reaches_the_engine_as_it_is(self, client: openai.OpenAI, engine: TableEngine) -> None:
        client.completions.create(model="dragon", prompt="\nQ: why?\nA:")
        request = engine.generation().request
        assert (request.prompt, request.question) == ("\nQ: why?\nA:", "Q: why?\nA:")

    def test_length_and_stop_end_the_answer(self, client: openai.OpenAI) -> None:
        cut = client.completions.create(model="dragon", prompt="a b c d", max_tokens=2)
        assert (cut.choices[0].text, cut.choices[0].finish_reason) == ("a b", "length")
        stopped = client.completions.create(model="dragon", prompt="a b c d", stop=[" c"])
        assert (stopped.choices[0].text, stopped.choices[0].finish_reason) == ("a b", "stop")

    def test_streaming_ends_with_the_report(self, client: openai.OpenAI) -> None:
        chunks = list(client.completions.create(model="dragon", prompt="a b c", stream=True))
        assert "".join(chunk.choices[0].text for chunk in chunks) == "a b c"
        assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, None, None, "stop"]
        assert {chunk.object for chunk in chunks} == {"text_completion"}
        assert len({chunk.id for chunk in chunks}) == 1
        assert [bool(report_of(chunk)) for chunk in chunks] == [False, False, False, True]


class TestChat:
    def test_whole_answer(self, client: openai.OpenAI) -> None:
        answer = client.chat.completions.create(model=MODEL, messages=user("one two"))
        message = answer.choices[0].message
        assert (message.role, message.content, answer.choices[0].finish_reason) == (
            "assistant",
            "one two",
            "stop",
        )
        assert answer.object == "chat.completion"
        assert answer.id.startswith("chatcmpl-")

    def test_an_answer_that_waits_for_the_cloud_says_so(self, client: openai.OpenAI) -> None:
        chunks = client.chat.completions.create(
            model="dragon", messages=user("hello there"), stream=True, extra_body={"wait": True}
        )
        seen = ["waiting" if report_of(each).get("waiting") else each.choices[0].delta.content for each in chunks]
        assert seen == ["", "hello", "waiting", " there", None]
        answer = client.chat.completions.create(model="dragon", messages=user("hello there"), extra_body={"wait": True})
        assert answer.choices[0].message.content == "hello there"

    def test_streaming_chunks(self, client: openai.OpenAI) -> None:
        chunks = list(client.chat.completions.create(model="dragon", messages=user("a b"), stream=True))
        deltas = [chunk.choices[0].delta for chunk in chunks]
        assert (deltas[0].role, deltas[0].content) == ("assistant", "")
        assert [delta.content for delta in deltas[1:]] == ["a", " b", None]
        assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
        assert all(chunk.usage is None for chunk in chunks)
        assert report_of(chunks[-1])["tokens"] == 2

    def test_include_usage_adds_a_last_chunk_without_choices(self, client: openai.OpenAI) -> None:
        stream = client.chat.completions.create(
            model="dragon", messages=user("a b"), stream=True, stream_options={"include_usage": True}
        )
        *earlier, last = list(stream)
        assert last.choices == []
        assert last.usage is not None
        assert last.usage.completion_tokens == 2
        assert report_of(last)["tokens"] == 2
        assert all(chunk.usage is None and not report_of(chunk) for chunk in earlier)

    def test_history_is_rendered_through_the_query_format(self, client: openai.OpenAI, engine: TableEngine) -> None:
        messages: list[Any] = [
            {"role": "system", "content": "Be brief."},
            *user("Who?"),
            {"role": "assistant", "content": "Ada."},
            {"role": "user", "content": [{"type": "text", "text": "And when?"}]},
        ]
        client.chat.completions.create(model="dragon", messages=messages)
        request = engine.generation().request
        assert request.question == "And when?"
        assert request.prompt == "\nBe brief.\nQuestion: Who?\nAnswer: Ada.\nQuestion: And when?\nAnswer:"

    def test_an_answer_can_be_sent_back(self, client: openai.OpenAI, engine: TableEngine) -> None:
        first = client.chat.completions.create(model="dragon", messages=user("hi"))
        turns: list[Any] = [*user("hi"), first.choices[0].message, *user("more")]
        client.chat.completions.create(model="dragon", messages=turns)
        assert engine.generation().request.prompt.startswith("\nQuestion: hi\nAnswer: hi\n")

    def test_the_streaming_helper_assembles_the_answer(self, client: openai.OpenAI) -> None:
        with client.chat.completions.stream(model="dragon", messages=user("a b c")) as stream:
            assert stream.get_final_completion().choices[0].message.content == "a b c"


class TestExtras:
    def test_every_extra_reaches_the_engine(self, client: openai.OpenAI, engine: TableEngine) -> None:
        extra = {
            "privacy": "balanced",
            "sampler": "paper",
            "placement": "greedy",
            "codec": "raw",
            "entries": 64,
            "exact": False,
            "documents": 7,
            "sources": "device",
            "method": "fetch-text",
            "aggregation": "context",
        }
        client.completions.create(
            model="dragon",
            prompt="x",
            top_p=0.5,
            temperature=0.7,
            seed=9,
            max_tokens=3,
            stop="!",
            extra_body=extra,
        )
        request = engine.generation().request
        assert {name: getattr(request, name) for name in extra} == extra
        assert (request.top_p, request.temperature, request.seed) == (0.5, 0.7, 9)
        assert (request.max_tokens, request.stop) == (3, ("!",))

    def test_what_is_left_out_is_the_daemons_default(self, serve: Serve, engine: TableEngine) -> None:
        from common.answer.request import Request

        defaults = Request(question="", prompt="", max_tokens=2, privacy="balanced", documents=9, temperature=0.25)
        with openai_client(serve(defaults=defaults)) as client:
            client.completions.create(model="dragon", prompt="a b c", temperature=None, seed=None)
        request = engine.generation().request
        assert (request.max_tokens, request.privacy, request.documents) == (2, "balanced", 9)
        assert (request.temperature, request.seed) == (0.25, None)

    def test_max_completion_tokens(self, client: openai.OpenAI, engine: TableEngine) -> None:
        client.chat.completions.create(model="dragon", messages=user("a b c"), max_completion_tokens=2)
        assert engine.generation().request.max_tokens == 2


class TestErrors:
    @pytest.mark.parametrize(
        ("fields", "param", "code"),
        [
            ({"prompt": " \n"}, "prompt", "empty_query"),
            ({"prompt": "refuse this"}, "placement", "invalid_value"),  # the engine says no
            ({"prompt": "x" * (2**14 + 1)}, "prompt", "context_length_exceeded"),
            ({"suffix": "s"}, "suffix", "unsupported_parameter"),
            ({"n": 25}, "n", "invalid_value"),
            ({"max_tokens": 0}, "max_tokens", "invalid_value"),
            ({"top_p": 1.9}, "top_p", "invalid_value"),
            ({"presence_penalty": 3.0}, "presence_penalty", "invalid_value"),
            ({"extra_body": {"response_format": {"type": "xml"}}}, "response_format", "invalid_value"),
            ({"extra_body": {"privacy": "none"}}, "privacy", "invalid_value"),
            ({"extra_body": {"prvacy": "strict"}}, "prvacy", "unknown_parameter"),
        ],
    )
    def test_bad_requests_name_the_field(
        self, client: openai.OpenAI, fields: dict[str, Any], param: str, code: str
    ) -> None:
        for stream in (False, True):
            with pytest.raises(openai.BadRequestError) as error:
                client.completions.create(**{"model": "dragon", "prompt": "x", "stream": stream} | fields)
            assert (error.value.param, error.value.code) == (param, code)
            assert error.value.type == "invalid_request_error"

    def test_an_engine_that_fails_is_a_server_error_without_its_text(self, client: openai.OpenAI) -> None:
        for prompt in ("crash secret-word", "unready secret-word"):
            with pytest.raises(openai.InternalServerError) as error:
                client.completions.create(model="dragon", prompt=prompt)
            assert "secret-word" not in str(error.value)

    def test_an_engine_that_fails_in_the_middle_of_a_stream(self, client: openai.OpenAI) -> None:
        stream = client.completions.create(model="dragon", prompt="crash now", stream=True)
        assert next(stream).choices[0].text == "crash"
        with pytest.raises(openai.APIError, match="engine failed"):
            list(stream)

    def test_a_wrong_key_is_an_authentication_error(self, serve: Serve) -> None:
        server = serve(api_key="sésame")
        with openai_client(server, "wrong") as client, pytest.raises(openai.AuthenticationError):
            client.models.list()

    def test_more_answers_than_places_is_a_rate_limit(self, serve: Serve, engine: TableEngine) -> None:
        engine.allowed = 0
        server = serve(max_active=1, max_waiting=0)
        with openai_client(server) as client, ThreadPoolExecutor(1) as pool:
            first = pool.submit(client.completions.create, model="dragon", prompt="one two")
            running = engine.generation()
            with pytest.raises(openai.RateLimitError):
                client.completions.create(model="dragon", prompt="three")
            running.allow(2)
            assert first.result().choices[0].text == "one two"
            engine.allowed = None
            assert client.completions.create(model="dragon", prompt="three").choices[0].text == "three"


def test_answers_run_side_by_side(server: HttpServer, engine: TableEngine) -> None:
    engine.allowed = 0
    prompts = [f"q{n} a b c d" for n in range(6)]

    def ask(prompt: str) -> str:
        with openai_client(server) as client:
            stream = client.completions.create(model="dragon", prompt=prompt, stream=True)
            return "".join(chunk.choices[0].text for chunk in stream)

    with ThreadPoolExecutor(len(prompts)) as pool:
        answers = pool.map(ask, prompts)
        engine.generation(count=len(prompts))
        for _ in range(5):  # one token of each in turn, the last one first
            for generation in reversed(engine.generations):
                generation.allow(1)
        assert list(answers) == prompts
