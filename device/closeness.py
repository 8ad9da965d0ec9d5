"""Closeness of the documents that an answer reads to its question."""

from __future__ import annotations

from common.answer.report import Record
from common.answer.request import Request

NOTHING = -1.0  # the closeness where no document was found


def closest(request: Request, record: Record, alone: bool) -> float | None:
    """The largest cosine of a document and the question; None where it is not known of every side that takes part.

    `alone`: the first token was decided without the cloud.
    """
    if request.documents == 0:
        return None  # nobody looked for any
    found = [NOTHING]
    if request.sources != "cloud":
        if len(record.origins) != len(record.device_titles):
            return None
        if None in record.origins:
            return None
        found.append(record.own_closest)
    if request.sources != "device" and not record.alone:
        if record.cloud_closest is not None:
            found.append(record.cloud_closest)
        elif not (alone and request.sources == "both"):
            return None
    return max(found)


def sentence(closeness: float, refused: bool) -> str:
    """The sentence about documents that are not close to a question: before the answer, or in its place."""
    if refused:
        return "I don't know: no document that was found is close to the question."
    if closeness == NOTHING:
        return "No document was found: the model answers without any, and may invent."
    return "No document is close to the question: the model answers without any, and may invent."
