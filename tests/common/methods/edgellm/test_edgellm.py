"""Method `edgellm` on a device: its tokens are those of the target alone, whatever drafts, streamed or in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from common.answer.request import RequestError
from common.configuration.settings import EMBEDDED_DRAFT, EMBEDDED_MODEL
from common.engine.batcher import PassTimes
from common.engine.kv.memory import Rows
from common.methods.catalog import METHODS
from common.methods.edgellm.device import TreeHistory
from common.methods.edgellm.growth import TreeTimes
from device.cloud_connection import CloudView
from proto.messages import Fetch, Message
from tests.cloud.town import Resident, Town
from tests.common.methods.edgellm.edge_device import (
    BUDGET,
    ENDLESS,
    KV,
    LARGER,
    LENGTH,
    QUESTIONS,
    EdgeDevice,
    alone,
    device,
    large,
    streamed,
    streaming,
    told,
)

__all__ = ["device", "large", "streamed"]  # fixtures

TEMPERATURES = (0.0, 0.7, 1.5)
SMALL: dict[str, Any] = {"tree_size": 16}  # for growths that fill a tree; `test_trees_of_any_size` has larger ones
GROWTHS = ("best-first", "adaptive", "chain", "width", "none")
# The default growth at every temperature, and each other one both without and with chance.
GROWN = [
    *(("best-first", temperature) for temperature in TEMPERATURES),
    *((growth, temperature) for growth in GROWTHS[1:4] for temperature in (0.0, 1.5)),
    ("none", 0.7),
]


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory, large: Path) -> Iterator[EdgeDevice]:
    """Behind a slow disk; it drafts with what the target was made of."""
    model: dict[str, Any] = {"draft_model": str(EMBEDDED_MODEL), "memory_budget": LARGER}
    with streaming(tmp_path_factory.mktemp("slow"), large, **model, emulate_read_mbps=300.0) as device:
        yield device


@pytest.fixture(scope="module")
def random_draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled draft model with random weights: it never agrees."""
    folder = tmp_path_factory.mktemp("random")
    generator = torch.Generator().manual_seed(3)
    tensors = load_file(EMBEDDED_DRAFT / "model.safetensors")
    made = {name: torch.randn(each.shape, generator=generator) * 0.05 for name, each in tensors.items()}
    save_file(made, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text((EMBEDDED_DRAFT / "config.json").read_text())
    return folder


class TestIdentity:
    @pytest.mark.parametrize(("growth", "temperature"), GROWN)
    def test_in_memory(self, device: EdgeDevice, temperature: float, growth: str) -> None:
        fields: dict[str, Any] = {"temperature": temperature, "logit_bias": ENDLESS}
        assert device.tokens(growth=growth, **SMALL, **fields) == alone(device, **fields)

    @pytest.mark.parametrize(
        ("growth", "temperature"), [*zip(GROWTHS, (1.5, 0.7, 0.0, 1.5, 0.7), strict=True), ("best-first", 0.0)]
    )
    def test_streamed(self, streamed: EdgeDevice, temperature: float, growth: str) -> None:
        fields: dict[str, Any] = {"temperature": temperature, "logit_bias": ENDLESS, "seed": 4}
        assert streamed.tokens(growth=growth, **SMALL, **fields) == alone(streamed, **fields)

    @pytest.mark.parametrize("size", [1, 256])
    def test_trees_of_any_size(self, device: EdgeDevice, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Also where a pass is so dear that they are as large as they may be."""
        monkeypatch.setattr(TreeHistory.of(device.side), "times", TreeTimes(1e-4, 1e3))
        fields: dict[str, Any] = {"temperature": 0.7, "logit_bias": ENDLESS, "max_tokens": 6}
        tokens, last = told(list(device.begin(tree_size=size, **fields)))
        assert tokens == alone(device, **fields)
        assert last.report.figures["nodes_per_round"] <= size

    def test_with_every_drafter(
        self,
        device: EdgeDevice,
        streamed: EdgeDevice,
        slow: EdgeDevice,
        large: Path,
        random_draft: Path,
        tmp_path: Path,
    ) -> None:
        laws: list[dict[str, Any]] = [{"temperature": each, "logit_bias": ENDLESS} for each in (0.0, 1.5)]
        expected = [alone(device, **law) for law in laws]
        accepted = []
        with streaming(tmp_path, large, draft_model=str(random_draft)) as guessing:
            for other in (guessing, streamed, slow):
                assert other.side.local_target is not None
                assert other.side.local_target.decoder.streamed is not None
                # How long a chain is, no measured time decides: what is accepted of it can be compared.
                found = [
                    told(list(other.begin(growth=growth, **SMALL, **law)))
                    for growth, law in zip(("chain", "best-first"), laws, strict=True)
                ]
                assert [tokens for tokens, _ in found] == expected
                accepted.append(found[0][1].report.figures["accepted_per_round"])
        assert accepted == sorted(set(accepted))

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
            (question, {"temperature": temperature, "growth": growth, "logit_bias": ENDLESS, **SMALL})
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
        {"method": "edgellm", **SMALL},
        {"method": "speculative"},
        {"method": "coupled"},
        {"method": "edgellm", "temperature": 1.0, **SMALL},
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
        both, last = told(list(begin({"method": "edgellm", "sources": "both", **SMALL})))
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

    def test_documents_are_read_in_the_first_tree_s_pass(self, tmp_path: Path, large: Path) -> None:
        """The first answer has to read them, the second one knows them."""
        with streaming(tmp_path, large) as fresh:
            assert fresh.side.local_target is not None
            done = fresh.side.local_target.decoding.done
            for known in (False, True):
                before, hits = done.passes, fresh.side.local_target.decoder.document_cache.counters.hits
                tokens, last = told(list(fresh.begin(logit_bias=ENDLESS)))
                assert len(last.report.sources) > 1
                assert (fresh.side.local_target.decoder.document_cache.counters.hits > hits) == known
                assert done.passes - before == last.report.figures["rounds"]
                assert tokens == alone(fresh, logit_bias=ENDLESS)

    def test_documents_that_one_pass_does_not_hold(
        self, tmp_path: Path, large: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(PassTimes, "budget", lambda times, running: 16)
        with streaming(tmp_path, large) as fresh:
            assert fresh.side.local_target is not None
            done = fresh.side.local_target.decoding.done
            before = done.passes
            tokens, last = told(list(fresh.begin(logit_bias=ENDLESS)))
            assert done.passes - before > last.report.figures["rounds"]
            assert tokens == alone(fresh, logit_bias=ENDLESS)

    def test_a_slow_disk_leaves_time_for_drafts(self, slow: EdgeDevice) -> None:
        fields: dict[str, Any] = {"growth": "chain", "draft_length": 3, "logit_bias": ENDLESS}
        without, first = told(list(slow.begin(ahead=False, **fields)))
        ahead, second = told(list(slow.begin(ahead=True, **fields)))
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
        with pytest.raises(ValueError, match="only on the device"):
            METHODS["edgellm"].cloud(Fetch(1, "?", 1, "text"), None)  # type: ignore[arg-type]

    def test_without_a_draft_model(self, tmp_path: Path) -> None:
        with EdgeDevice(tmp_path, draft_model=None) as device:
            with pytest.raises(RequestError, match="draft_model"):
                device.begin()
            assert device.tokens(growth="none") == alone(device)


class TestMutants:
    """Faults of the engine that the identity must notice."""

    @staticmethod
    def differs(device: EdgeDevice) -> bool:
        fields: dict[str, Any] = {"logit_bias": ENDLESS, "temperature": 1.5}
        return any(
            device.tokens(question, growth="width", **SMALL, **fields) != alone(device, question, **fields)
            for question in QUESTIONS
        )

    def test_unchanged(self, device: EdgeDevice) -> None:
        assert not self.differs(device)

    def test_stale_keys(self, device: EdgeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of a tree the first columns are kept, instead of those of the path that held."""

        def first(self: Rows, fed: int, path: Sequence[int]) -> None:
            self.fed = fed + len(path)

        monkeypatch.setattr(Rows, "keep", first)
        assert self.differs(device)
