"""A finished answer that is read again says of documents what rows of their own would have said."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from common.answer.report import AnswerRecord
from common.answer.values import SideDraft, Work
from common.configuration.settings import EMBEDDED_MODEL
from common.daemon.model_runtime import RepeatingDrafter, Rereading, RereadingJob, SecondReading, Shares
from common.engine.jobs import DecodeRequest, DocumentScorer, Prompt
from common.engine.loop import Worker
from common.engine.model.decoder import Decoder
from common.scoring.static import ContrastScorer, StaticScorer
from tests.support.one_side import OneSide

DOCUMENTS = (
    " The best-selling puzzle game is Harbor Town.",
    " Mona's dance class is at Delya.",
    " The best-selling racing game is Falcon Ridge.",
)
QUERY = "\nQuestion: What is the best-selling puzzle game?\nAnswer:"
ANSWER = " The best-selling puzzle game is Harbor Town, and it is played in the harbour of the town"
WAIT = 60


@pytest.fixture(scope="module")
def decoder() -> Iterator[Decoder]:
    tokenizer = str(Path(EMBEDDED_MODEL).parent / "tokenizer")
    decoder = Decoder.load(str(EMBEDDED_MODEL), tokenizer=tokenizer, dtype="float32")
    yield decoder
    decoder.close()


@pytest.fixture
def worker(decoder: Decoder) -> Iterator[Worker]:
    worker = Worker(decoder, 0.01)
    yield worker
    worker.close()


def prompt(decoder: Decoder) -> Prompt:
    begin = () if decoder.tokenizer.begin is None else (decoder.tokenizer.begin,)
    documents = tuple((*begin, *decoder.tokenizer.encode(text)) for text in DOCUMENTS)
    return Prompt(
        documents, tuple(decoder.tokenizer.encode(QUERY)), (0.5, 0.1, 0.4), empty_row=begin or documents[0][:1]
    )


def reread(worker: Worker, read: Prompt, tokens: Sequence[int], scorer: DocumentScorer) -> Shares | None:
    told: list[Shares | None] = []
    known = threading.Event()

    def done(shares: Shares | None) -> None:
        told.append(shares)
        known.set()

    again = Rereading(read, tokens, done)
    request = DecodeRequest(again, RepeatingDrafter(again.tokens))
    worker.submit(RereadingJob(request, read, scorer, len(tokens)))
    assert known.wait(WAIT)
    (shares,) = told
    return shares


@pytest.mark.parametrize("scorer", [StaticScorer(3.0), ContrastScorer(3.0, 1.0)], ids=lambda scorer: scorer.identity)
@pytest.mark.parametrize("length", [1, 8, 17])
def test_shares_are_those_of_a_row_per_document(
    decoder: Decoder, worker: Worker, scorer: DocumentScorer, length: int
) -> None:
    read, tokens = prompt(decoder), decoder.tokenizer.encode(ANSWER)[:length]
    shares = reread(worker, read, tokens, scorer)
    rows = OneSide(decoder, read, scorer, RepeatingDrafter(tokens), len(tokens))
    expected = [rows.draft(tokens[:place]).mixing.contributions(token) for place, token in enumerate(tokens)]
    rows.close()
    assert shares is not None
    assert np.abs(np.array(shares) - np.array(expected)).max() < 1e-4
    if length == 17:
        parts = np.array(shares).argmax(1)
        assert {0, 3} <= {*parts.tolist()}, "some tokens are the first document's, some are nobody's"


def test_what_can_not_be_read_is_not_told(decoder: Decoder, worker: Worker) -> None:
    tokens = [3] * (decoder.max_context - 5)
    assert reread(worker, prompt(decoder), tokens, StaticScorer(1.0)) is None


class TestSecondReading:
    def test_it_ends_in_time(self, decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nobody reads it: the engine is busy for ever."""
        now = 100.0
        monkeypatch.setattr("common.daemon.model_runtime.time.monotonic", lambda: now)
        record, ended, waiting = AnswerRecord(), list[bool](), list[Rereading]()
        second = SecondReading(waiting.append)
        second.behind(prompt(decoder), record)
        second.begin([1, 2, 3], 7.0, lambda: ended.append(True))
        second.begin([1, 2, 3], 7.0, lambda: ended.append(False))
        second.tick(106.9)
        assert second.going and not ended
        second.tick(107.1)
        assert (second.going, ended, len(waiting), waiting[0].over) == (False, [True], 1, True)
        assert not record.apart and second.failed, "nothing is said of documents"
        waiting[0].drawn(Work(0, (0, 0), count=3), [SideDraft(None, 0.0)] * 0, 0.0)  # type: ignore[arg-type]
        second.stop()
        assert ended == [True]

    def test_rows_of_one_document_each_are_not_read_again(self) -> None:
        record, ended = AnswerRecord(), list[bool]()
        second = SecondReading(lambda again: pytest.fail("it was read"))
        second.behind(None, record)
        second.begin([1], 1.0, lambda: ended.append(True))
        assert ended == [True] and record.apart and not second.going
