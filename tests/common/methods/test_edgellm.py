"""Method `edgellm` on a device: its tokens are those of the target alone, whatever drafts, streamed or in memory."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import load_file, save_file

from common.configuration import ConfigurationError
from common.kv.memory import Rows
from common.methods.catalog import METHODS
from common.model.errors import ModelError
from common.runtime.errors import AnswerFailed, RequestError
from common.settings import EMBEDDED_DRAFT, EMBEDDED_MODEL
from device.cloud_view import CloudView
from device.http.options import HttpOptions
from device.http.server import HttpServer
from device.interface import Finished, Provisional, TokenEvent
from proto.messages import Fetch, Message
from scripts.bench.inflated import inflate
from tests.cloud.town import Resident, Town
from tests.common.methods.edge_device import ENDLESS, LENGTH, QUESTIONS, EdgeDevice, told

TEMPERATURES = (0.0, 0.7, 1.5)
GROWTHS = ("adaptive", "chain", "width", "none")
KV = 25 * 2**20
BUDGET = KV + 55 * 2**20  # holds some of the large target's eight layers
LARGER = BUDGET + 12 * 2**20  # for a draft model that is the target itself


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target that computes what the embedded model does, with twice the layers."""
    return inflate(EMBEDDED_MODEL, tmp_path_factory.mktemp("large"), 8)


@pytest.fixture(scope="module")
def random_draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded draft model with random weights."""
    folder = tmp_path_factory.mktemp("random")
    generator = torch.Generator().manual_seed(3)
    tensors = load_file(EMBEDDED_DRAFT / "model.safetensors")
    made = {name: torch.randn(each.shape, generator=generator) * 0.05 for name, each in tensors.items()}
    save_file(made, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text((EMBEDDED_DRAFT / "config.json").read_text())
    return folder


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EdgeDevice]:
    with EdgeDevice(tmp_path_factory.mktemp("resident")) as device:
        yield device


def streaming_settings(target: Path) -> dict[str, Any]:
    return {"local_target": str(target), "memory_budget": BUDGET, "kv_bytes": KV}


def streaming(data: Path, target: Path, **changes: Any) -> EdgeDevice:
    return EdgeDevice(data, **(streaming_settings(target) | changes))


@pytest.fixture(scope="module")
def streamed(tmp_path_factory: pytest.TempPathFactory, large: Path) -> Iterator[EdgeDevice]:
    with streaming(tmp_path_factory.mktemp("streamed"), large) as device:
        yield device


def alone(device: EdgeDevice, question: str = QUESTIONS[0], **fields: Any) -> list[int]:
    """The embedded model's tokens, decoded one by one."""
    return device.tokens(question, method="speculative", **fields)


class TestIdentity:
    @pytest.mark.parametrize("temperature", TEMPERATURES)
    @pytest.mark.parametrize("growth", GROWTHS)
    def test_in_memory(self, device: EdgeDevice, temperature: float, growth: str) -> None:
        fields: dict[str, Any] = {"temperature": temperature, "logit_bias": ENDLESS}
        assert device.tokens(growth=growth, **fields) == alone(device, **fields)

    @pytest.mark.parametrize("temperature", TEMPERATURES)
    @pytest.mark.parametrize("growth", GROWTHS)
    def test_streamed(self, streamed: EdgeDevice, temperature: float, growth: str) -> None:
        fields: dict[str, Any] = {"temperature": temperature, "logit_bias": ENDLESS, "seed": 4}
        assert streamed.tokens(growth=growth, **fields) == alone(streamed, **fields)

    def test_with_every_drafter(self, large: Path, random_draft: Path, tmp_path: Path) -> None:
        accepted = []
        for draft in (EMBEDDED_DRAFT, random_draft, EMBEDDED_MODEL):
            budget = LARGER if draft == EMBEDDED_MODEL else BUDGET
            with streaming(tmp_path / draft.name, large, draft_model=str(draft), memory_budget=budget) as device:
                assert device.side.local_target is not None
                assert device.side.local_target.decoder.streamed is not None
                for temperature in TEMPERATURES:
                    fields: dict[str, Any] = {"temperature": temperature, "logit_bias": ENDLESS}
                    tokens, last = told(list(device.begin(**fields)))
                    assert tokens == alone(device, **fields)
                    if not temperature:
                        accepted.append(last.report.figures["accepted_per_round"])
        assert accepted[1] < accepted[0] < accepted[2]

    def test_ends_formats_and_stops(self, streamed: EdgeDevice) -> None:
        wanted: list[dict[str, Any]] = [
            {},
            {"max_tokens": 1},
            {"max_tokens": 2, "temperature": 1.0},
            {"stop": "is", "logit_bias": ENDLESS},
            {"aggregation": "context"},
            {"documents": 0},
            {"presence_penalty": 1.0, "logit_bias": ENDLESS, "top_p": 0.6, "temperature": 0.7},
            {"response_format": {"type": "json_schema", "schema": {"type": "integer"}}, "temperature": 1.0},
        ]
        for fields in wanted:
            tokens, last = told(list(streamed.begin(**fields)))
            expected, other = told(list(streamed.begin(method="speculative", **fields)))
            assert (tokens, last.text, last.reason) == (expected, other.text, other.reason), fields

    def test_several_answers_at_once(self, streamed: EdgeDevice) -> None:
        requests: list[tuple[str, dict[str, Any]]] = [
            (question, {"temperature": temperature, "growth": growth, "logit_bias": ENDLESS})
            for question, temperature, growth in zip(QUESTIONS, TEMPERATURES, GROWTHS, strict=False)
        ]
        expected = [streamed.tokens(question, **fields) for question, fields in requests]
        running = [streamed.begin(question, **fields) for question, fields in requests]
        assert [told(list(each))[0] for each in running] == expected


def test_beside_answers_with_a_cloud(
    fresh_data: Callable[[], Path], large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"model": str(EMBEDDED_MODEL), "dtype": "float32"}
    own: dict[str, Any] = {
        "draft_model": str(EMBEDDED_DRAFT),
        "local_target": str(large),
        "memory_budget": BUDGET,
        "kv_bytes": KV,
    }
    methods: list[dict[str, Any]] = [
        {"method": "edgellm"},
        {"method": "speculative"},
        {"method": "coupled"},
        {"method": "edgellm", "temperature": 1.0},
    ]
    with Town(fresh_data(), **settings) as town:
        resident: Resident = town.device("edge", **settings, **own)

        def begin(fields: dict[str, Any]) -> Any:
            return resident.begin(QUESTIONS[0], max_tokens=LENGTH, logit_bias=ENDLESS, **fields)

        expected = [told(list(begin(fields)))[0] for fields in methods]
        together = [begin(fields) for fields in methods]
        assert [told(list(each))[0] for each in together] == expected
        sent: list[Message] = []

        def noted(view: CloudView, message: Message) -> int:
            sent.append(message)
            return 0

        with monkeypatch.context() as patch:
            patch.setattr(CloudView, "send", noted)
            assert told(list(begin(methods[0])))[0] == expected[0]
        assert not sent, "the cloud is told nothing"
        both, last = told(list(begin({"method": "edgellm", "sources": "both"})))
        assert {source.side for source in last.report.sources} == {"device", "cloud"}
        assert last.report.fetched_bytes > 0
        assert both == told(list(begin({"method": "edgellm", "sources": "both", "growth": "none"})))[0]


class TestWhatItDoes:
    def test_figures(self, streamed: EdgeDevice) -> None:
        tokens, last = told(list(streamed.begin(logit_bias=ENDLESS)))
        report, figures = last.report, last.report.figures
        assert len(tokens) == LENGTH
        assert figures["rounds"] < LENGTH
        assert figures["accepted_per_round"] <= figures["nodes_per_round"]
        assert figures["rounds"] * (figures["accepted_per_round"] + 1) == pytest.approx(LENGTH)
        assert figures["read_bytes"] > 0
        assert figures["verify_ms"] > 0
        assert report.sent_bytes == 0
        assert len(report.attribution) == LENGTH
        assert all(sum(row) == pytest.approx(1, abs=1e-3) for row in report.attribution)

    def test_a_slow_disk_leaves_time_for_drafts(self, large: Path, tmp_path: Path) -> None:
        with streaming(
            tmp_path, large, draft_model=str(EMBEDDED_MODEL), memory_budget=LARGER, emulate_read_mbps=300.0
        ) as device:
            fields: dict[str, Any] = {"growth": "chain", "draft_length": 3, "logit_bias": ENDLESS}
            without, first = told(list(device.begin(ahead=False, **fields)))
            ahead, second = told(list(device.begin(ahead=True, **fields)))
        assert without == ahead
        assert first.report.figures["drafted_ahead"] == 0
        assert 0 < second.report.figures["kept_ahead"] <= second.report.figures["drafted_ahead"]

    def test_without_documents_nothing_is_attributed(self, device: EdgeDevice) -> None:
        tokens, last = told(list(device.begin(documents=0)))
        assert last.report.sources == ()
        assert last.report.attribution == ((),) * len(tokens)

    def test_in_memory_nothing_is_drafted_ahead(self, device: EdgeDevice) -> None:
        _, last = told(list(device.begin(logit_bias=ENDLESS)))
        assert last.report.figures["drafted_ahead"] == 0
        assert last.report.figures["read_bytes"] == 0

    def test_privacy_offline(self, device: EdgeDevice) -> None:
        assert device.tokens(privacy="offline") == alone(device)

    def test_a_trace(self, device: EdgeDevice) -> None:
        _, last = told(list(device.begin(trace=True)))
        assert last.report.trace is not None

    @pytest.mark.parametrize(
        ("fields", "word"),
        [
            ({"sources": "cloud"}, "sources"),
            ({"sampler": "paper"}, "race"),
            ({"top_logprobs": 1}, "log-probabilities"),
        ],
    )
    def test_what_it_refuses(self, device: EdgeDevice, fields: dict[str, Any], word: str) -> None:
        with pytest.raises(RequestError, match=word):
            device.begin(**fields)

    def test_a_cloud_has_no_part_in_it(self) -> None:
        with pytest.raises(ValueError, match="wholly on the device"):
            METHODS["edgellm"].cloud(Fetch(1, "?", 1, "text"), None)  # type: ignore[arg-type]

    def test_without_a_draft_model(self, tmp_path: Path) -> None:
        with EdgeDevice(tmp_path, draft_model=None) as device:
            with pytest.raises(RequestError, match="draft_model"):
                device.begin()
            assert device.tokens(growth="none") == alone(device)


class TestProvisionalText:
    def test_it_is_replaced_by_what_is_final(self, device: EdgeDevice) -> None:
        events = list(device.begin(provisional=True, logit_bias=ENDLESS))
        shown = [event.text for event in events if isinstance(event, Provisional)]
        tokens, last = told(events)
        assert tokens == device.tokens(logit_bias=ENDLESS)
        assert any(text and text in last.text for text in shown)
        assert not any(isinstance(event, Provisional) for event in device.begin())

    def test_over_http(self, device: EdgeDevice) -> None:
        body: dict[str, Any] = {
            "messages": [{"role": "user", "content": QUESTIONS[0]}],
            "method": "edgellm",
            "sources": "device",
            "seed": 20,
            "stream": True,
        }
        with HttpServer(device.engine, HttpOptions(port=0)) as server:
            asked, plain = (
                chunks(f"{server.url}/v1/chat/completions", body | more) for more in ({"provisional": True}, {})
            )
        drafts = [chunk for chunk in asked if "provisional" in (chunk.get("dragon") or {})]
        assert drafts
        assert all(chunk["choices"][0]["delta"] == {} for chunk in drafts)
        assert not any("provisional" in (chunk.get("dragon") or {}) for chunk in plain)
        assert content(asked) == content(plain)


def chunks(url: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    lines = httpx.post(url, json=body, timeout=60, trust_env=False).text.splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def content(stream: Sequence[dict[str, Any]]) -> str:
    return "".join(choice["delta"].get("content") or "" for chunk in stream for choice in chunk["choices"])


class TestFailures:
    def test_cancelled_in_the_middle(self, streamed: EdgeDevice) -> None:
        generation = streamed.begin(logit_bias=ENDLESS, max_tokens=100)
        events = iter(generation)
        while not isinstance(next(events), TokenEvent):
            pass
        generation.cancel()
        *_, last = events
        assert isinstance(last, Finished)
        assert last.reason == "cancelled"
        assert streamed.tokens() == alone(streamed)

    def test_cancelled_at_any_time(self, streamed: EdgeDevice) -> None:
        for tenths in range(6):
            generation = streamed.begin(logit_bias=ENDLESS, max_tokens=100)
            timer = threading.Timer(tenths / 20, generation.cancel)
            timer.start()
            _, last = told(list(generation))
            timer.join()
            assert last.reason in ("cancelled", "length")
        assert streamed.tokens() == alone(streamed)

    def test_a_file_that_shrinks_ends_the_answer_and_nothing_else(self, large: Path, tmp_path: Path) -> None:
        target = tmp_path / "target"
        target.mkdir()
        for file in large.iterdir():
            (target / file.name).write_bytes(file.read_bytes())
        last = max(target.glob("*.safetensors"))
        whole = last.read_bytes()
        with streaming(tmp_path, target) as device:
            expected = device.tokens()
            os.truncate(last, len(whole) // 8)
            with pytest.raises(AnswerFailed, match=r"can't be used any more: .*become shorter.*\.$"):
                for _ in range(3):  # layers that were read ahead are good
                    device.tokens(logit_bias=ENDLESS)
            assert alone(device) == expected
            last.write_bytes(whole)
            assert device.tokens() == expected

    def test_a_budget_that_is_too_small(self, large: Path, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match=r"budget of 1048576 bytes is too small, the smallest is \d+") as caught:
            streaming(tmp_path / "one", large, memory_budget=2**20)
        smallest = int(str(caught.value).partition("smallest is ")[2].partition(":")[0])
        with pytest.raises(ModelError):
            streaming(tmp_path / "two", large, memory_budget=smallest - 1)
        with streaming(tmp_path / "three", large, memory_budget=smallest) as device:
            assert device.tokens() == alone(device)

    def test_another_tokenizer(self, tmp_path: Path) -> None:
        from tests.common.model.tiny_models import make_model

        other = make_model("llama", tmp_path / "other")
        with pytest.raises((ConfigurationError, ModelError)):
            EdgeDevice(tmp_path, local_target=str(other))


class TestMutants:
    """What the identity rests on in the engine: it must notice."""

    @staticmethod
    def differs(device: EdgeDevice) -> bool:
        fields: dict[str, Any] = {"logit_bias": ENDLESS, "temperature": 1.5}
        by_trees = [device.tokens(question, growth="width", **fields) for question in QUESTIONS]
        return by_trees != [alone(device, question, **fields) for question in QUESTIONS]

    def test_unchanged(self, device: EdgeDevice) -> None:
        assert not self.differs(device)

    def test_stale_keys(self, device: EdgeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of a tree the first columns are kept, instead of those of the path that held."""

        def first(self: Rows, fed: int, path: Sequence[int]) -> None:
            self.fed = fed + len(path)

        monkeypatch.setattr(Rows, "keep", first)
        assert self.differs(device)
