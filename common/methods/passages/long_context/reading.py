"""One document of a library as one row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from common.answer.errors import RequestError
from common.daemon.prompt_rows import PromptRows
from common.daemon.scope import Scope
from common.daemon.side import SideRuntime
from common.library.hit import Hit
from proto.messages import Open

BETWEEN: Final = "\n"  # chunks; what white space was there, a library does not keep


@dataclass(frozen=True, slots=True)
class Whole:
    """A document that is read whole."""

    rows: PromptRows
    tokens: int  # of the document
    chunks: Sequence[Hit]  # with their similarity to the question, in the document's order


def read_whole(side: SideRuntime, name: str, request: Open, scope: Scope) -> Whole:
    """The document `name`, which must be in `scope`. On the retrieval thread.

    Raises `AnswerFailed`, or `RequestError` for a document that is not there, or that the context does not hold.
    """
    hits, model = side.passages(name, request.question, scope), side.target
    title = hits[0].title if hits else name
    whole = model.document(title, BETWEEN.join(hit.text for hit in hits), 1.0)
    whole = replace(whole, passing=scope.library is not None)
    needed, room = len(whole.tokens), model.room(request)
    if needed > room:
        raise RequestError(
            f"The document {title!r} is too long to be read whole: it needs {needed} tokens, and the model's context "
            f"holds {max(room, 0)} beside question and answer.",
            "long_document",
        )
    return Whole(model.arrange(request, [whole], ()), needed, hits)
