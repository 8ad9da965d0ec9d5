"""Conversion of bodies to the engine's request: what is accepted, what is noted, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.answer.request import Request, RequestError
from common.methods.aggregate.method import SpeculativeRequest
from common.methods.catalog import METHODS
from common.methods.interface import top_p_of
from common.processors.calls import ProcessorOptions, decode_options, encode_options
from device.http.embeddings import EmbeddingsBody
from device.http.errors import ApiError
from device.http.fields import NEUTRAL, REFUSED
from device.http.prompts import derived_seed, read_chat_request, read_completion_request
from device.http.responses.schema import ResponsesBody
from device.http.schema import ChatBody, CompletionBody, parse
from device.http.tokens import DetokenizeBody, TokenizeBody
from tests.device.http.asking import ENGINE, OPTIONS, ask_chat, ask_completion, chat, completion, encode, turn


def refusal(**fields: Any) -> ApiError:
    with pytest.raises(ApiError) as error:
        completion(**fields)
    assert error.value.status == 400
    return error.value


class TestFields:
    def test_nothing_given_is_the_default(self) -> None:
        assert completion() == SpeculativeRequest(question="x", prompt="x")

    def test_null_is_not_given(self) -> None:
        names = [
            "max_tokens",
            "temperature",
            "top_p",
            "seed",
            "stop",
            "stream_options",
            "user",
            "privacy",
            "exact",
        ]
        assert completion(**dict.fromkeys(names)) == completion()

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("max_tokens", "5"),
            ("max_tokens", True),
            ("max_tokens", 1.5),
            ("temperature", -0.1),
            ("temperature", 2.1),
            ("temperature", "hot"),
            ("top_p", 0.0),
            ("top_p", 1.1),
            ("seed", -(2**63) - 1),
            ("seed", 2**64),
            ("seed", 1.0),
            ("n", 0),
            ("n", True),
            ("n", 129),
            ("stop", ["a", "b", "c", "d", "e"]),
            ("stop", [""]),
            ("stop", ""),
            ("stop", [1]),
            ("stop", {"a": 1}),
            ("stream", "yes"),
            ("stream", 1),
            ("prompt", []),
            ("prompt", [[]]),
            ("prompt", [-1]),
            ("prompt", [257]),
            ("prompt", ["a", 1]),
            ("prompt", 5),
            ("privacy", "STRICT"),
            ("sampler", "greedy"),
            ("placement", "left"),
            ("codec", "gzip"),
            ("entries", 0),
            ("entries", 4097),
            ("exact", "true"),
            ("documents", -1),
            ("documents", 256),
            ("sources", ["device"]),
            ("method", "drdg"),
            ("aggregation", 0),
            ("user", 7),
            ("metadata", "x"),
            ("stream_options", 1),
        ],
    )
    def test_bad_values_name_their_field(self, name: str, value: Any) -> None:
        error = refusal(**{name: value})
        assert error.param is not None
        assert error.param.split("[")[0] == name
        assert error.code == "invalid_value"

    def test_bad_values_are_not_repeated(self) -> None:
        assert "canary" not in refusal(privacy="canary", prompt="x").message
        assert "canary" not in refusal(stop=[{"canary": 1}]).message

    @pytest.mark.parametrize("name", sorted(REFUSED))
    def test_what_asks_for_another_answer_is_refused_unless_it_asks_for_nothing(self, name: str) -> None:
        for neutral in (None, *REFUSED[name]):
            assert completion(**{name: neutral}) == completion()
        error = refusal(**{name: {"something": "else"}})
        assert (error.param, error.code) == (name, "unsupported_parameter")
        assert "not supported" in error.message

    @pytest.mark.parametrize("name", sorted(NEUTRAL))
    def test_what_is_ignored_is_noted_unless_it_asks_for_nothing(self, name: str) -> None:
        for neutral in (None, *NEUTRAL[name]):
            assert completion(**{name: neutral}) == completion()
        (note,) = ask_completion(**{name: True}).notes
        assert f"'{name}'" in note

    def test_fields_without_effect_need_no_note(self) -> None:
        fields = {"user": "u", "metadata": {"a": "b"}, "service_tier": "auto", "parallel_tool_calls": True}
        assert completion(**fields, prompt_cache_key="k", stream_options={"include_usage": True}) == completion()

    def test_unknown_fields_are_noted_by_names_that_can_be_shown(self) -> None:
        (note,) = ask_completion(temprature=1, **{"naïve\r\nx": 1, "y" * 100: 1}).notes
        assert "'temprature'" in note
        assert note.count("can't be shown") == 2
        assert note.isascii()
        assert len(ask_completion(**{f"field{n}": n for n in range(100)}).notes[0]) < 300
        assert refusal(**{f"field{n}": n for n in range(300)}).code == "invalid_value"

    @pytest.mark.parametrize("name", ["prvacy", "privcy", "Privacy", "PRIVACY", "source", "SOURCES"])
    def test_a_misspelt_limit_of_privacy_is_refused(self, name: str) -> None:
        assert refusal(**{name: "offline"}).code == "unknown_parameter"

    @pytest.mark.parametrize(("name", "value"), [("background", 0), ("best_of", True), ("best_of", 1.0), ("echo", 0)])
    def test_neutral_values_are_compared_by_type_too(self, name: str, value: Any) -> None:
        assert refusal(**{name: value}).code == "unsupported_parameter"

    def test_missing_fields(self) -> None:
        assert refusal(prompt=None).message == "Missing required parameter: 'prompt'."
        assert parse(CompletionBody, b'{"prompt": "x"}')[0].model == "dragon"

    def test_more_tokens_than_there_may_be_are_as_many_as_there_may_be(self) -> None:
        for asked in (ask_completion(max_tokens=2**20), ask_chat(turn("user", "x"), max_completion_tokens=513)):
            assert asked.requests[0].max_tokens == 512
            assert "512" in asked.notes[0]
        assert completion(max_tokens=512).max_tokens == 512

    def test_a_temperature_below_the_least_is_0(self) -> None:
        assert [completion(temperature=value).temperature for value in (0.0099, 4e-38, 1e-40, 0, 0.01)] == [0] * 4 + [
            0.01
        ]
        assert completion(method="coupled", draft_temperature=0.001, privacy="balanced") == completion(
            method="coupled", draft_temperature=0.0, privacy="balanced"
        )

    def test_a_negative_seed_is_the_unsigned_number_of_the_same_bits(self) -> None:
        for seed, taken in ((-1, 2**64 - 1), (-(2**63), 2**63), (0, 0), (2**64 - 1, 2**64 - 1)):
            assert completion(seed=seed).seed == taken

    def test_seeds_that_are_derived_are_ones_that_every_reader_of_json_keeps(self) -> None:
        """The first is that of the request, whatever it is."""
        asked = [each.seed for each in ask_completion(seed=2**64 - 1, n=8, temperature=1).requests]
        assert asked == [derived_seed(2**64 - 1, index) for index in range(8)] and len(set(asked)) == 8
        assert asked[0] == 2**64 - 1 and all(seed is not None and seed < 2**53 for seed in asked[1:])

    def test_both_samplers_truncate_as_they_are_asked_or_by_their_own(self) -> None:
        assert [top_p_of(completion(**fields)) for fields in ({}, {"top_p": 0.3}, {"sampler": "paper"})] == [
            1,
            0.3,
            0.8,
        ]
        assert top_p_of(completion(top_p=1.0, sampler="paper")) == 1.0

    def test_biases_and_penalties_are_taken(self) -> None:
        asked = completion(logit_bias={"7": -100, "3": 1.5}, presence_penalty=1, frequency_penalty=-0.5)
        assert asked.logit_bias == {3: 1.5, 7: -100.0}
        assert (asked.presence_penalty, asked.frequency_penalty) == (1.0, -0.5)
        assert decode_options(encode_options(asked)).model_dump() == {
            name: getattr(asked, name) for name in ProcessorOptions.model_fields
        }
        assert encode_options(completion(logit_bias={}, presence_penalty=0, response_format={"type": "text"})) == ""

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("logit_bias", {"seven": 1}),
            ("logit_bias", {"-1": 1}),
            ("logit_bias", {"7": 100.5}),
            ("logit_bias", {"7": "1"}),
            ("logit_bias", {"7": True}),
            ("logit_bias", [1]),
            ("logit_bias", {str(token): 1 for token in range(301)}),
            ("presence_penalty", 2.5),
            ("frequency_penalty", "1"),
            ("response_format", {"type": "xml"}),
            ("response_format", {"type": "json_schema"}),
            ("response_format", {"type": "json_object", "schema": []}),
            ("response_format", {"type": "json_schema", "json_schema": {"schema": []}}),
            ("response_format", "json"),
            ("logprobs", 21),
            ("logprobs", "1"),
        ],
    )
    def test_processors_have_limits(self, name: str, value: object) -> None:
        found = refusal(**{name: value})
        assert (found.param or "").startswith(name)
        assert "0x" not in found.message and len(found.message) < 300

    def test_formats_are_put_alike_in_all_endpoints(self) -> None:
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
        told = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
        newer, _ = parse(
            ResponsesBody, encode({"input": "x", "text": {"format": {"type": "json_schema", "schema": schema}}})
        )
        of_chat = chat(turn("user", "x"), response_format=told).response_format
        responses = read_chat_request(newer.messages, newer.options, 1, OPTIONS, ENGINE).requests[0].response_format
        assert of_chat == responses == completion(response_format=told).response_format
        assert of_chat is not None and json.loads(of_chat) == schema | {"additionalProperties": False}

    def test_responses_take_a_format_by_its_name_in_chats(self) -> None:
        wanted, text = {"type": "json_object"}, {"type": "text"}
        for fields, form in (
            ({"response_format": wanted}, wanted),
            ({"response_format": wanted, "text": {"verbosity": "low"}}, wanted),
            ({"response_format": wanted, "text": {"format": wanted}}, wanted),
            ({}, text),
        ):
            body, _ = parse(ResponsesBody, encode({"input": "x"} | fields))
            (request,) = read_chat_request(body.messages, body.options, 1, OPTIONS, ENGINE).requests
            assert body.format == form
            assert request.response_format == ('{"type":"object"}' if form is wanted else None)
        with pytest.raises(ApiError, match="differ"):
            parse(ResponsesBody, encode({"input": "x", "response_format": wanted, "text": {"format": text}}))

    def test_the_schema_of_a_json_object_binds_it_as_well(self) -> None:
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
        older = {"type": "json_object", "schema": schema}
        newer = {"type": "json_schema", "json_schema": {"schema": schema}}
        assert completion(response_format=older) == completion(response_format=newer)
        assert completion(response_format={"type": "json_object"}).response_format == '{"type":"object"}'

    def test_descriptions_take_no_room_in_a_format(self) -> None:
        told = {f"m{n}": {"type": "string", "description": "x" * 400, "title": "M"} for n in range(30)}
        wanted = {"type": "json_schema", "json_schema": {"schema": {"type": "object", "properties": told}}}
        kept = completion(response_format=wanted).response_format
        assert kept is not None and "x" not in kept and json.loads(kept)["properties"]["m29"] == {"type": "string"}

    def test_a_format_that_is_too_long_is_told_what_it_is(self) -> None:
        wanted = {"type": "json_schema", "json_schema": {"schema": {"enum": ["x" * 9000]}}}
        assert "at most 8192 bytes, without its descriptions" in refusal(response_format=wanted).message

    def test_logprobs_are_asked_for_in_each_format_s_way(self) -> None:
        assert [completion(**fields).top_logprobs for fields in ({}, {"logprobs": False}, {"logprobs": 3})] == [
            None,
            None,
            3,
        ]
        assert chat(turn("user", "x"), logprobs=True).top_logprobs == 0
        assert chat(turn("user", "x"), logprobs=True, top_logprobs=20).top_logprobs == 20
        with pytest.raises(ApiError, match="needs 'logprobs'"):
            ask_chat(turn("user", "x"), top_logprobs=2)
        newer, _ = parse(ResponsesBody, encode({"input": "x", "include": ["message.output_text.logprobs"]}))
        assert newer.options["top_logprobs"] == 0
        for count, told in ((0, {}), (2, {"top_logprobs": 2})):  # as of OpenAI's own response, none is 0
            newer, _ = parse(ResponsesBody, encode({"input": "x", "top_logprobs": count}))
            assert {name: value for name, value in newer.options.items() if name == "top_logprobs"} == told

    def test_two_token_limits_must_agree(self) -> None:
        message = turn("user", "x")
        assert chat(message, max_tokens=3, max_completion_tokens=3).max_tokens == 3
        for older in (4, [3], "3"):  # one that is no number at all, too
            with pytest.raises(ApiError, match="differ"):
                chat(message, max_tokens=older, max_completion_tokens=3)

    def test_a_lone_surrogate_is_refused(self) -> None:
        with pytest.raises(ApiError) as error:
            parse(CompletionBody, b'{"model": "dragon", "prompt": "\\ud800"}')
        assert error.value.status == 400

    @given(
        st.binary(max_size=60)
        | st.recursive(
            st.none() | st.booleans() | st.floats() | st.text(),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["model", "messages", "prompt", "role", "content", "stop", "x", "input", "text"]),
                    inner,
                    max_size=4,
                )
            ),
            max_leaves=12,
        ).map(lambda value: json.dumps(value).encode())
    )
    def test_any_body_is_accepted_or_refused_with_400(self, body: bytes) -> None:
        for kind in (CompletionBody, ChatBody, ResponsesBody, EmbeddingsBody, TokenizeBody, DetokenizeBody):
            status = 200
            try:
                parse(kind, body)
            except ApiError as error:
                status = error.status
            assert status in (200, 400)


class TestAStricterRequest:
    """Of a device whose placement needs privacy `balanced`."""

    def asked(self, **fields: Any) -> Request:
        defaults = OPTIONS.defaults.model_copy(update={"privacy": "balanced", "placement": "greedy"})
        body, _ = parse(CompletionBody, encode({"prompt": "x"} | fields))
        (request,) = read_completion_request(body, replace(OPTIONS, defaults=defaults), ENGINE).requests
        return request

    def test_is_aggregated_here(self) -> None:
        request = self.asked(privacy="strict")
        assert request.placement == "device"
        METHODS[request.method].check(request)

    def test_is_refused_where_it_names_the_placement_itself(self) -> None:
        request = self.asked(privacy="strict", placement="greedy")
        with pytest.raises(RequestError, match="needs privacy 'balanced'"):
            METHODS[request.method].check(request)

    @pytest.mark.parametrize("fields", [{}, {"privacy": "balanced"}], ids=str)
    def test_others_have_the_setting(self, fields: dict[str, Any]) -> None:
        assert self.asked(**fields).placement == "greedy"


class TestSeveralAnswers:
    def test_each_has_a_seed_of_its_own_and_the_first_the_one_that_was_sent(self) -> None:
        requests = ask_completion(n=3, seed=5, temperature=1.0).requests
        assert requests[0] == completion(seed=5, temperature=1.0)
        assert len({request.seed for request in requests}) == 3
        assert requests == ask_completion(n=3, seed=5, temperature=1.0).requests
        assert {request.seed for request in ask_completion(n=3, temperature=1.0).requests} == {None}

    def test_that_must_be_the_same_are_noted(self) -> None:
        assert "temperature 0" in ask_completion(n=2).notes[0]
        assert not ask_completion(n=2, temperature=0.5).notes

    def test_a_list_of_prompts_has_answers_in_its_order(self) -> None:
        requests = ask_completion(prompt=["a", "b"], n=2, temperature=1.0, seed=5).requests
        assert [request.prompt for request in requests] == ["a", "a", "b", "b"]
        assert requests[0].seed == requests[2].seed == 5

    def test_token_ids_are_their_text_where_that_has_the_same_ids(self) -> None:
        assert completion(prompt=[104, 105]) == completion(prompt="hi") == completion(prompt=[[104, 105]])
        assert len(ask_completion(prompt=[[104], [105]]).requests) == 2

    def test_token_ids_that_no_text_has_are_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ENGINE, "encode", lambda text: [7])
        request = completion(prompt=[104, 105])
        assert (request.question, request.prompt) == ("hi", "")
        assert [control.token for control in request.controls] == [104, 105]
        assert refusal(prompt=[104] * 5000).code == "unsupported_value"
