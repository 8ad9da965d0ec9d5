"""Both halves of a one-sided answer about one document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from common.answer.report import MethodReport
from common.answer.request import RequestError
from common.daemon.model_runtime import PromptRows
from common.daemon.side import Scope, SideRuntime
from common.library.chunks import MOST_CHARACTERS_PER_TOKEN
from common.library.hit import Hit
from common.methods.aggregate.cloud import AggregateCloud
from common.methods.aggregate.device import AggregateDevice
from common.methods.aggregate.driver import MakeSampler
from common.methods.interface import CloudContext, DeviceContext
from proto.messages import Closed, Fetch, Open

# --- reading

BETWEEN: Final = "\n"  # between chunks; the original white space is lost


@dataclass(frozen=True, slots=True)
class WholeDocument:
    """A document to read whole."""

    rows: PromptRows
    tokens: int  # of the document
    chunks: Sequence[Hit]  # with similarities, in document order


def read_document(side: SideRuntime, name: str, request: Open, scope: Scope) -> WholeDocument:
    """Read a document within `scope`. On the retrieval thread.

    Raises `AnswerFailed`, or `RequestError` if it is missing or exceeds the context.
    """
    hits, model = side.passages(name, request.question, scope), side.target
    title, text = hits[0].title if hits else name, BETWEEN.join(hit.text for hit in hits)
    room = model.room(request)
    beginning = text[: max(room, 1) * MOST_CHARACTERS_PER_TOKEN]
    if len(beginning) < len(text) and len(model.document(title, beginning, 1.0).tokens) > room:
        raise _too_long(title, f"more than {max(room, 0)}", room)  # counting them all may take seconds
    whole = replace(model.document(title, text, 1.0), passing=scope.library is not None)
    if len(whole.tokens) > room:
        raise _too_long(title, str(len(whole.tokens)), room)
    return WholeDocument(model.arrange(request, [whole], ()), len(whole.tokens), hits)


def _too_long(title: str, needed: str, room: int) -> RequestError:
    return RequestError(
        f"The document {title!r} is too long to be read whole: it needs {needed} tokens, and question and answer "
        f"leave {max(room, 0)} of the model's context.",
        "long_document",
    )


# --- halves


class LongContextDevice(AggregateDevice):
    """Implements `DeviceHalf`."""

    def __init__(self, context: DeviceContext, paper: MakeSampler, document: str) -> None:
        super().__init__(context, paper)
        self._document = document

    def find(self, request: Open) -> PromptRows:
        return read_document(self.context.side, self._document, request, self.context.scope).rows

    def report(self, closed: Closed | None) -> MethodReport:
        """Without shares if the cloud sends none: the document is one row."""
        part = super().report(closed)
        return replace(part, attribution=(), unattributed=0) if closed is not None and part.unattributed else part


class LongContextCloud(AggregateCloud):
    """Implements `CloudHalf`."""

    def __init__(self, request: Open | Fetch, context: CloudContext, paper: MakeSampler, document: str) -> None:
        super().__init__(request, context, paper)
        self._document = document

    def find(self, request: Open) -> PromptRows:
        return read_document(self.context.side, self._document, request, self.scope).rows
