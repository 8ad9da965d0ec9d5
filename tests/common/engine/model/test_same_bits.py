"""A token's numbers are the same bits whatever it is computed with: alone, in chunks, among neighbours, in a tree,
behind stored keys and values, with more threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from common.answer.values import ROOT
from common.engine.kv.memory import Rows
from common.engine.model import exact as ordered
from common.engine.model import packed
from common.engine.model.decoder import Decoder
from common.engine.model.exact import OrderedAttention, RowBlocks, Scores, Sight, chain_sight
from common.engine.model.packed import Feed
from common.engine.model.probes import find_exactness
from tests.common.engine.model.tiny_models import make_model, some_tokens

FAMILIES = ("qwen2", "opt", "mistral", "gemma2", "gemma3", "wide")
TEXT = 150  # tokens: two tiles of keys and more


class TestLoading:
    @pytest.mark.parametrize("family", FAMILIES)
    def test_bfloat16(self, family: str, tmp_path: Path) -> None:
        assert Decoder.load(str(make_model(family, tmp_path)), dtype="bfloat16").exactness == "bit-exact"

    @pytest.mark.parametrize("family", ["qwen2", "wide"])
    def test_float32_is_never_called_near(self, family: str, tmp_path: Path) -> None:
        assert Decoder.load(str(make_model(family, tmp_path)), dtype="float32").exactness in ("bit-exact", "rounded")

    def test_a_library_that_sums_in_another_order_is_noticed(self, coarse: Decoder) -> None:
        assert coarse.exactness == "bit-exact"
        ours = coarse._attention, coarse._short
        try:
            coarse._attention = coarse._short = None
            assert find_exactness(coarse, False) == "near"
        finally:
            coarse._attention, coarse._short = ours

    def test_sums_that_depend_on_the_query_are_noticed(self, coarse: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
        attend = OrderedAttention.attend

        def by_count(attention: OrderedAttention, query: torch.Tensor, *others: Any) -> None:
            attend(attention, query, *others)
            output = others[-1]
            if len(query) == 1:
                bits = output.view(torch.int16)
                bits[:, 0, 0] ^= 1  # the last bit of one number

        monkeypatch.setattr(OrderedAttention, "attend", by_count)
        assert find_exactness(coarse, False) == "near"


class Text:
    """One text, and the bits of its logits in one pass."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self.tokens = some_tokens(decoder, TEXT, seed=3)
        self.other = some_tokens(decoder, TEXT, seed=4)
        rows = decoder.memory.take(1, TEXT)
        self.expected = decoder.forward([Feed(rows, self.tokens, TEXT)])
        self.states = rows.states(0)
        decoder.memory.give_back(rows)

    def after(self, count: int, rows: int = 1) -> Rows:
        """Rows that hold the first `count` tokens, as they were stored."""
        taken = self.decoder.memory.take(rows, 2 * TEXT)
        if count:
            for row in range(rows):
                taken.fill(row, tuple((key[:, :count], value[:, :count]) for key, value in self.states))
        return taken


@pytest.fixture(scope="session")
def text(coarse: Decoder) -> Text:
    return Text(coarse)


class TestPasses:
    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(
        stored=st.integers(0, TEXT - 20),
        sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8),
        neighbours=st.lists(st.tuples(st.integers(0, TEXT - 1), st.integers(1, 30), st.integers(1, 3)), max_size=3),
    )
    def test_chunks_among_neighbours(
        self, coarse: Decoder, text: Text, stored: int, sizes: Sequence[int], neighbours: Sequence[tuple[int, int, int]]
    ) -> None:
        rows, taken = text.after(stored), []
        at = stored
        for size in sizes:
            part = text.tokens[at : at + size]
            if not part:
                break
            beside = []
            for before, count, number in neighbours:
                taken.append(text.after(before, number))
                beside.append(Feed(taken[-1], text.other[:count], 1))
            logits = coarse.forward([*beside, Feed(rows, part, len(part))])
            assert torch.equal(logits[-len(part) :], text.expected[at : at + len(part)])
            at += len(part)
        for each in (rows, *taken):
            coarse.memory.give_back(each)

    @settings(max_examples=40, deadline=None, derandomize=True)
    @given(data=st.data(), before=st.integers(0, TEXT - 12), length=st.integers(1, 12))
    def test_a_path_of_a_tree(self, coarse: Decoder, text: Text, data: st.DataObject, before: int, length: int) -> None:
        """The text's next tokens lie in a tree of others; afterwards they are kept, and the text goes on."""
        tokens, parents, path = list[int](), list[int](), list[int]()
        for place in range(length):
            for _ in range(data.draw(st.integers(0, 3))):
                parents.append(data.draw(st.integers(ROOT, len(parents) - 1)))
                tokens.append(text.other[len(tokens)])
            path.append(len(tokens))
            parents.append(path[-2] if place else ROOT)
            tokens.append(text.tokens[before + place])
        rows = text.after(before)
        logits = coarse.forward([Feed(rows, tokens, len(tokens), parents)])
        assert torch.equal(logits[path], text.expected[before : before + length])
        rows.keep(0, path)
        for key, value in zip(rows.states(0), text.states, strict=True):
            assert all(torch.equal(one, other[:, : before + length]) for one, other in zip(key, value, strict=True))
        if before + length < TEXT:
            following = coarse.forward([Feed(rows, text.tokens[before + length : before + length + 1])])
            assert torch.equal(following, text.expected[before + length :][:1])
        coarse.memory.give_back(rows)


class TestOrderedAttention:
    def tensors(self, dtype: torch.dtype, tokens: int, columns: int) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed(5)
        shapes = (tokens, 6, 24), (2, 2, columns, 24), (2, 2, columns, 20)
        return tuple(torch.randn(shape, generator=generator).to(dtype) for shape in shapes)

    def chain(self, count: int, longest: int) -> Sight:
        return chain_sight(np.arange(longest - count, longest)[None], longest, None)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_is_attention(self, dtype: torch.dtype) -> None:
        query, keys, values = self.tensors(dtype, 100, 160)
        output = torch.zeros(100, 6, 20, dtype=dtype)
        OrderedAttention(1).attend(query, keys, values, 1, self.chain(100, 150), Scores(), output)
        mask = torch.ones(100, 150).tril(50).bool()
        expected = scaled_dot_product_attention(
            query.double().transpose(0, 1)[None],
            keys[1:, :, :150].double(),
            values[1:, :, :150].double(),
            mask,
            enable_gqa=True,
        )
        worst = float((output.double() - expected[0].transpose(0, 1)).abs().max())
        assert worst < (1e-6 if dtype == torch.float32 else 1e-2)

    def test_extreme_scores(self) -> None:
        """A key that outweighs all others by far, and one that weighs nothing."""
        query, keys, values = self.tensors(torch.float32, 1, 64)
        keys[0, :, 3], keys[0, :, 5] = 100 * query[0, ::3], -100 * query[0, ::3]
        output = torch.zeros(1, 6, 20)
        OrderedAttention(1).attend(query, keys, values, 0, self.chain(1, 8), Scores(), output)
        assert torch.allclose(output[0, 0], values[0, 0, 3]) and torch.allclose(output[0, 3], values[0, 1, 3])

    def test_what_lies_behind_is_not_read(self) -> None:
        query, keys, values = self.tensors(torch.float32, 2, 64)
        results = []
        for stale in (0.0, float("nan")):
            keys[:, :, 9:], values[:, :, 9:] = stale, stale
            results.append(torch.zeros(2, 6, 20))
            OrderedAttention(1).attend(query, keys, values, 0, self.chain(2, 9), Scores(), results[-1])
        assert torch.equal(*results)

    def test_threads_change_no_bit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ordered, "_WORTH_A_THREAD", 0)
        query, keys, values = self.tensors(torch.bfloat16, 200, 256)
        results = []
        for threads in (1, 2, 5):
            results.append(torch.zeros(200, 6, 20, dtype=torch.bfloat16))
            attention = OrderedAttention(threads)
            attention.attend(query, keys, values, 0, self.chain(200, 250), Scores(), results[-1])
            attention.close()
        assert all(torch.equal(results[0], each) for each in results[1:])


@pytest.mark.parametrize("blocks", [RowBlocks(2), RowBlocks(32, 32)], ids=str)
def test_a_pass_has_whole_blocks(coarse: Decoder, blocks: RowBlocks) -> None:
    """Linear layers would make them, too; but then each one by itself."""
    taken = coarse.memory.take(1, 64)
    for count in (1, 2, 33):
        made = packed.PackedPass([Feed(taken, [5] * count, 1)], coarse.layout, blocks)
        assert made.tokens.numel() == made.positions.numel() == count + blocks.padding(count)
        assert (made.logits, made.wanted.numel()) == (1, blocks.unit)
    assert packed.PackedPass([Feed(taken, [5], 0)], coarse.layout, blocks).wanted.numel() == 0
    coarse.memory.give_back(taken)
