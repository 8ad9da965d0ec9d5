"""One document of a library as one row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from common.answer.errors import RequestError
from common.daemon.prompt_rows import PromptRows
from common.daemon.scope import Scope
from common.daemon.side import SideRuntime
from common.library.chunks import MOST_CHARACTERS_PER_TOKEN
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
    title, text = hits[0].title if hits else name, BETWEEN.join(hit.text for hit in hits)
    room = model.room(request)
    beginning = text[: max(room, 1) * MOST_CHARACTERS_PER_TOKEN]
    if len(beginning) < len(text) and len(model.document(title, beginning, 1.0).tokens) > room:
        raise _too_long(title, f"more than {max(room, 0)}", room)  # its other tokens may take seconds to count
    whole = replace(model.document(title, text, 1.0), passing=scope.library is not None)
    if len(whole.tokens) > room:
        raise _too_long(title, str(len(whole.tokens)), room)
    return Whole(model.arrange(request, [whole], ()), len(whole.tokens), hits)


def _too_long(title: str, needed: str, room: int) -> RequestError:
    return RequestError(
        f"The document {title!r} is too long to be read whole: it needs {needed} tokens, and the model's context holds "
        f"{max(room, 0)} beside question and answer.",
        "long_document",
    )
