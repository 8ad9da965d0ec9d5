"""Readings of rapid's two sides: a document whole, and the passages of it that fit the question (RAPID, §2.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from common.answer.errors import RequestError
from common.daemon.model_runtime import ModelRuntime
from common.daemon.prompt_rows import PromptRows
from common.daemon.scope import Scope
from common.daemon.side import SideRuntime
from common.engine.model.tokenizer import Tokenizer
from common.methods.drafted.rapid.request import RapidRequest
from common.methods.drafted.reading import Found, Passage
from common.methods.passages.long_context.reading import BETWEEN, read_whole
from proto.limits import MOST_FETCHED
from proto.messages import Open

LEAST_RETRIEVED: Final = 4096  # tokens that the drafter reads, where it is left open
COMPRESSION: Final = 24  # of a document so long that its 24th is more


@dataclass(frozen=True, slots=True)
class DocumentReading:
    """Implements `Reading`: the verifier's row is the document, the drafter's has its passages in their order."""

    request: RapidRequest
    most: int = MOST_FETCHED

    def find(self, side: SideRuntime, request: Open, scope: Scope) -> Found:
        """Raises `RequestError` for a document that is not there, or that the model's context does not hold."""
        whole = read_whole(side, self.request.long_document, request, scope)
        limit = self.request.retrieval_tokens or max(LEAST_RETRIEVED, whole.tokens // COMPRESSION)
        near = [hit for hit in whole.chunks if hit.similarity >= self.request.retrieval_threshold]
        passages = [Passage(hit.source, hit.similarity, hit.text, scope.library is not None) for hit in near]
        return Found(whole.rows, chosen(side.target.decoder.tokenizer, passages, limit))

    def rows(self, model: ModelRuntime, request: Open, passages: Sequence[Passage]) -> PromptRows:
        """Passages that the drafter's context has no room for are left out, those that fit the question least first;
        the request's own take the place of the document's, and must fit: raises `RequestError`.
        """
        own = [Passage(self.request.long_document, 1.0, text, passing=True) for text in self.request.passages]
        room = model.room(request)
        kept = chosen(model.decoder.tokenizer, own or passages, room - len(model.document("", "", 0.0).tokens))
        if len(kept) < len(own):
            raise RequestError(
                f"The draft model's context holds {max(room, 0)} tokens beside question and answer, and the passages "
                "have more: send fewer.",
                "passages",
            )
        if not kept:
            return model.arrange(request, (), ())
        text = BETWEEN.join(each.text for each in kept)
        best = max(kept, key=lambda each: each.similarity)
        document = model.document(best.title, text, best.similarity, room)
        return model.arrange(request, [replace(document, passing=best.passing)], ())


def chosen(tokenizer: Tokenizer, passages: Sequence[Passage], limit: int) -> list[Passage]:
    """The most similar of `passages` that have `limit` tokens together, in their own order; not more than travel."""
    kept: list[int] = []
    left = limit
    for place in sorted(range(len(passages)), key=lambda place: -passages[place].similarity)[:MOST_FETCHED]:
        left -= len(tokenizer.encode(passages[place].text + BETWEEN))
        if left < 0:
            break
        kept.append(place)
    return [passages[place] for place in sorted(kept)]
