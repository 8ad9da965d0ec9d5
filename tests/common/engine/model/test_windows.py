"""Layers that look back over a window, and scores that are bent: what is peculiar to a class counts.

Documents are read before the rows that they become part of, so a window that were not counted in positions of the row
would show in every comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import MistralConfig, Phi3Config

from common.engine.model import exact as scores
from common.engine.model import packed
from common.engine.model import probes as agreement
from common.engine.model.decoder import Decoder
from common.engine.model.errors import ModelError
from common.engine.model.exact import KeyWindow, OrderedAttention, Scores, Sight
from common.engine.model.packed import OTHERWISE, Feed, PackedPass, packed_attention, reach_mask
from common.engine.model.probes import _LayoutProbe
from tests.common.engine.model.architectures import FULL, MIXED, WINDOW, WINDOWED
from tests.common.engine.model.driving import STEP_ROLLBACK_STEP, drive
from tests.common.engine.model.tiny_models import (
    ORDERED,
    Pair,
    byte_level_tokenizer,
    make_model,
    random_model,
    some_tokens,
)

SHORTER: dict[str, Any] = {"vocab_size": 340, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}

with_windows = pytest.mark.parametrize("pair", [*WINDOWED, *MIXED], indirect=True)


def windows(decoder: Decoder) -> set[int | None]:
    return {layer.window for layer in decoder.layout.layers}


def saved(config: Any, folder: Path) -> str:
    random_model(config).save_pretrained(folder)
    byte_level_tokenizer().save_pretrained(folder)
    return str(folder)


class TestWindowsThatAreFound:
    @pytest.mark.parametrize("pair", FULL, indirect=True)
    def test_none(self, pair: Pair) -> None:
        assert windows(pair.decoder) == {None}

    @pytest.mark.parametrize("pair", WINDOWED, indirect=True)
    def test_in_every_layer(self, pair: Pair) -> None:
        assert windows(pair.decoder) == {WINDOW}

    @pytest.mark.parametrize("pair", MIXED, indirect=True)
    def test_in_some_layers(self, pair: Pair) -> None:
        kinds = pair.plain.model.config.layer_types[: len(pair.decoder.layout.layers)]
        expected = [WINDOW if kind == "sliding_attention" else None for kind in kinds]
        assert [layer.window for layer in pair.decoder.layout.layers] == expected
        assert set(expected) == {WINDOW, None}

    def test_one_that_no_row_can_outgrow_is_none(self, tmp_path: Path) -> None:
        config = MistralConfig(**SHORTER, num_key_value_heads=2, max_position_embeddings=64, sliding_window=64)
        assert windows(Decoder.load(saved(config, tmp_path))) == {None}

    def test_both_edges_are_looked_at_however_long_it_is(self) -> None:
        config = MistralConfig(max_position_embeddings=131_072)

        def one_too_many(batch: object, head: object, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
            return (key <= query) & (key >= query - 4096)

        said = [
            reach_mask(mask_function=one_too_many, q_length=1, kv_length=1, config=config, local_size=size).item()
            for size in (None, 4095, 4096, 4097, 4098)
        ]
        assert said == [OTHERWISE, OTHERWISE, OTHERWISE, 4097, OTHERWISE]


@pytest.mark.parametrize("pair", WINDOWED, indirect=True)
def test_an_answer_forgets_what_all_windows_have_passed(pair: Pair) -> None:
    decoder = pair.decoder
    document, query = some_tokens(decoder, 40, seed=3), some_tokens(decoder, 3, seed=4)
    seen = len(decoder.layout.layers) * (WINDOW - 1) - len(query) + 1  # tokens of the document
    logits = []
    for changed in (None, -seen - 1, -seen):
        text = list(document)
        if changed is not None:
            text[changed] = text[changed] % (decoder.vocabulary - 3) + 2
        logits.append(decoder.open([text], query, reserve=1)[1])
    assert torch.equal(logits[0], logits[1])
    assert not torch.equal(logits[0], logits[2])


class TestWhatAPassCosts:
    @pytest.mark.parametrize("pair", WINDOWED, indirect=True)
    def test_a_step_of_rows_of_one_length_needs_no_mask(self, pair: Pair) -> None:
        decoder = pair.decoder
        rows, _ = decoder.open([some_tokens(decoder, 20, seed) for seed in (1, 2)], [5], 4)
        step = PackedPass([Feed(rows, [7])], decoder.layout)
        assert step.view(step.groups[0], WINDOW, False) == KeyWindow(22 - WINDOW)

    def test_one_mask_serves_all_layers_of_a_window_and_short_rows_have_none_of_their_own(self, llama: Pair) -> None:
        rows = llama.decoder.take_rows([[], []], [5, 6, 7], 4)
        step = PackedPass([Feed(rows, [5, 6, 7])], llama.decoder.layout)
        group = step.groups[0]
        assert step.view(group, 2, False) is step.view(group, 2, False)
        assert step.view(group, 3, False) is step.view(group, None, False)


class TestMutants:
    """Windows that are not honoured are noticed, when the model is loaded and by every comparison."""

    @with_windows
    @pytest.mark.parametrize("error", [None, -1, 1], ids=["ignored", "too short", "too long"])
    def test_windows(self, pair: Pair, error: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
        sight = PackedPass.sight

        def wrong(made: PackedPass, group: packed.SlotGroup, window: int | None) -> Sight:
            return sight(made, group, window and (None if error is None else window + error))

        monkeypatch.setattr(PackedPass, "sight", wrong)
        with pytest.raises(AssertionError):
            drive(pair, STEP_ROLLBACK_STEP)

    @pytest.mark.parametrize("pair", [f"gemma2{ORDERED}", f"gpt-oss{ORDERED}"], indirect=True)
    def test_ordered_scores(self, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
        attend: Any = OrderedAttention.attend

        def plain(*arguments: Any) -> None:
            *others, asked, output = arguments
            attend(*others, Scores(asked.scaling), output)

        monkeypatch.setattr(OrderedAttention, "attend", plain)
        with pytest.raises(AssertionError):
            drive(pair, STEP_ROLLBACK_STEP)

    @pytest.mark.parametrize("pair", ["gemma2", "gpt-oss"], indirect=True)
    def test_scores(self, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
        written_out: Any = scores._written_out

        def plain(*arguments: Any) -> torch.Tensor:
            *others, asked, count = arguments
            weighed: torch.Tensor = written_out(*others, Scores(asked.scaling), count)
            return weighed

        monkeypatch.setattr(scores, "_written_out", plain)
        with pytest.raises(AssertionError):
            drive(pair, STEP_ROLLBACK_STEP)

    @pytest.mark.parametrize("family", [*WINDOWED, *MIXED])
    def test_windows_that_the_load_overlooks(
        self, family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(_LayoutProbe, "note_window", lambda probe, layer, window: None)
        with pytest.raises(ModelError, match="can't be served: its logits in a packed pass differ"):
            Decoder.load(str(make_model(family, tmp_path)))


class TestWindowsBeyondAFewTokens:
    """The load's comparison outgrows a window where that takes no time."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> str:
        sizes = SHORTER | {"num_key_value_heads": 2, "intermediate_size": 48, "initializer_range": 0.3}
        return saved(MistralConfig(**sizes, max_position_embeddings=256, sliding_window=40), tmp_path)

    def test_one_that_is_overlooked_is_noticed(self, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_LayoutProbe, "note_window", lambda probe, layer, window: None)
        with pytest.raises(ModelError, match="differ from a fresh pass"):
            Decoder.load(folder)

    def test_a_large_model_is_spared_the_pass(self, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
        longest: list[int] = []
        fresh = Decoder.fresh_logits

        def noted(decoder: Decoder, tokens: Sequence[int]) -> torch.Tensor:
            longest.append(len(tokens))
            return fresh(decoder, tokens)

        monkeypatch.setattr(Decoder, "fresh_logits", noted)
        assert windows(Decoder.load(folder)) == {40}
        assert max(longest) > 80
        longest.clear()
        monkeypatch.setattr(agreement, "_AFFORDABLE", 0)
        assert windows(Decoder.load(folder)) == {40}
        assert max(longest) < 20


@pytest.mark.parametrize("unknown", ["position_bias", "indices"])
def test_an_attention_that_is_not_known_is_refused(unknown: str, llama: Pair) -> None:
    rows = llama.decoder.take_rows([[]], [5], 1)
    states = PackedPass([Feed(rows, [5])], llama.decoder.layout).layer(0)
    query = torch.zeros(1, 4, 1, 8)
    with pytest.raises(ModelError, match=f"Identity .*\\({unknown}\\), which packed passes can't"):
        packed_attention(torch.nn.Identity(), query, states, states, None, None, None, None, **{unknown: query})


@pytest.mark.parametrize("pair", WINDOWED, indirect=True)
def test_the_plain_pass_that_loading_compares_with_has_windows(pair: Pair) -> None:
    tokens = some_tokens(pair.decoder, 40, seed=1)
    pair.check(pair.decoder.fresh_logits(tokens)[None], [tokens])


def test_rows_end_before_positions_would_be_turned_otherwise(tmp_path: Path) -> None:
    turns = {"rope_type": "longrope", "rope_theta": 10_000.0, "short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    lengths: dict[str, Any] = {"max_position_embeddings": 64, "original_max_position_embeddings": 32}
    config = Phi3Config(**SHORTER, **lengths, intermediate_size=48, rope_parameters=turns, pad_token_id=0)
    assert Decoder.load(saved(config, tmp_path)).max_context == 32
