"""Documents that are read by themselves and placed one behind the other, as `Blocks` of a row."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from common.answer.values import Work
from common.engine.jobs import AnswerRows, Blocks, Prompt
from common.engine.model.decoder import Decoder
from tests.common.engine.model.tiny_models import TOLERANCE, Pair, load_pair, some_tokens

# Of each kind of positions: all dimensions turned, in halves or as neighbours; few; of latents.
TURNED = ("llama", "cohere", "gpt-neox", "deepseek-v3")
# Families whose layers differ, with the pairs that each turns of its keys.
MIXED = {"smollm3": [4, 0, 4], "cohere2": [4, 0, 4], "gemma4": [4, 4, 8]}
LEARNED = ("opt", "gpt2")
BEGIN = 3  # tokens


@pytest.fixture(scope="module", params=TURNED)
def turned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return load_pair(request.param, tmp_path_factory.getbasetemp())


def blocks(decoder: Decoder) -> Blocks:
    begin = some_tokens(decoder, BEGIN, 1)
    return Blocks(tuple((*begin, *some_tokens(decoder, length, length)) for length in (11, 5, 8)), BEGIN)


def read(decoder: Decoder, prompt: Prompt) -> tuple[AnswerRows, int, Tensor]:
    """The rows of `prompt`, tokens that were fed, and the logits behind the query."""
    rows = AnswerRows(decoder, prompt, decoder.take_rows(prompt.parts, prompt.query, 4))
    fed = 0
    while True:
        feeds = rows.feeds(Work(0, ()))
        logits = decoder.forward(feeds)
        for feed in feeds:
            fed += len(feed.tokens) * len(feed.rows)
            rows.fed(feed)
        if feeds[0].rows is rows.rows:
            return rows, fed, logits


def reference(pair: Pair, held: Blocks, query: tuple[int, ...]) -> Tensor:
    """Logits of one fresh pass over the documents, each with a beginning of its own just before it, and the query. A
    document sees itself only; the query sees all, but the beginning once.
    """
    tokens, positions, of, seen = list[int](), list[int](), list[int](), list[bool]()
    end = held.begin
    for number, document in enumerate(held.documents):
        tokens += document
        positions += range(end - held.begin, end - held.begin + len(document))
        of += [number] * len(document)
        seen += [number == 0] * held.begin + [True] * (len(document) - held.begin)
        end += len(document) - held.begin
    tokens += query
    positions += range(end, end + len(query))
    of, seen = [*of, *[-1] * len(query)], [*seen, *[True] * len(query)]
    whose, told = torch.tensor(of), torch.tensor(seen)
    sees = (whose[:, None] == whose[None]) | ((whose[:, None] == -1) & told[None])
    mask = torch.zeros(sees.shape).masked_fill(~(sees & torch.ones_like(sees).tril()), float("-inf"))
    with torch.inference_mode():
        found: Tensor = pair.plain.model(
            input_ids=torch.tensor([tokens]),
            position_ids=torch.tensor([positions]),
            attention_mask=mask[None, None],
            use_cache=False,
        ).logits[0, -1]
    return found.float()


def test_a_row_of_blocks_is_what_a_pass_with_their_mask_gives(turned: Pair) -> None:
    held, query = blocks(turned.decoder), tuple(some_tokens(turned.decoder, 4, 99))
    prompt = Prompt((held.tokens,), query, (0.5,), blocks={0: held})
    rows, _, logits = read(turned.decoder, prompt)
    turned.decoder.memory.give_back(rows.rows)
    expected = reference(turned, held, query)[: turned.decoder.vocabulary]
    assert float((logits[0] - expected).abs().max()) <= TOLERANCE * float(expected.abs().max())
    whole = turned.plain.after([[*held.tokens, *query]])[0, : turned.decoder.vocabulary]
    assert float((whole - expected).abs().max()) > 100 * TOLERANCE * float(expected.abs().max()), "or nothing is shown"


def test_documents_that_were_read_before_are_not_read_again(turned: Pair) -> None:
    decoder, held = turned.decoder, blocks(turned.decoder)
    query = tuple(some_tokens(decoder, 4, 98))
    logits = []
    for documents in (held.documents, held.documents, held.documents[::-1]):
        again = Blocks(documents, BEGIN)
        rows, fed, found = read(decoder, Prompt((again.tokens,), query, (0.5,), blocks={0: again}))
        decoder.memory.give_back(rows.rows)
        logits.append(found)
    assert fed == len(query)
    assert torch.equal(logits[0], logits[1])
    assert not torch.equal(logits[0], logits[2]), "the order is part of the answer"


def test_several_rows_read_a_document_once(turned: Pair) -> None:
    """A row of blocks beside rows of one document each, all unread: two read at a time, none twice."""
    decoder = turned.decoder
    begin = some_tokens(decoder, BEGIN, 2)
    one, other = ((*begin, *some_tokens(decoder, length, 50 + length)) for length in (9, 6))
    held, query = Blocks((one, other), BEGIN), tuple(some_tokens(decoder, 3, 97))
    prompt = Prompt((held.tokens, other), query, (0.5, 0.5), blocks={0: held})
    rows, fed, logits = read(decoder, prompt)
    decoder.memory.give_back(rows.rows)
    assert fed == len(one) + len(other) + 2 * len(query)
    expected = torch.stack([reference(turned, held, query), turned.plain.after([[*other, *query]])[0]])
    expected = expected[:, : decoder.vocabulary]
    assert bool(((logits - expected).abs().amax(1) <= TOLERANCE * expected.abs().amax(1)).all())


@pytest.mark.parametrize("family", MIXED)
def test_every_layer_has_its_own_turn(family: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    rotation = load_pair(family, tmp_path_factory.getbasetemp()).decoder.rotation
    assert rotation is not None
    assert [len(keys.angles) for keys, _ in rotation.layers] == MIXED[family]
    assert {len(values.angles) for _, values in rotation.layers} == {0}


@pytest.mark.parametrize("family", LEARNED)
def test_learned_positions_are_not_moved(family: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    decoder = load_pair(family, tmp_path_factory.getbasetemp()).decoder
    assert decoder.rotation is None
    states = decoder.document_states(some_tokens(decoder, 5, 1), None)
    with pytest.raises(ValueError, match="can't be moved"):
        decoder.moved(states, 3)
