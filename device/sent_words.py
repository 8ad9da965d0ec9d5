"""The sentence that tells a user what left this device for an answer."""

from __future__ import annotations

from typing import Final

from common.answer.report import SentBytes

NOTHING: Final = "Nothing of this answer left this device."
NAMES: Final = {
    "question": "the question",
    "earlier_turns": "earlier turns",
    "tokens": "the answer's tokens",
    "probabilities": "probabilities",
    "control": "control messages",
}


def sent_in_words(sent: SentBytes) -> str:
    """Returns the total, each part, and what stayed here: text of documents, and probabilities."""
    if not sent.total:
        return NOTHING
    parts = [f"{name} ({size:,} B)" for part, name in NAMES.items() if (size := getattr(sent, part))]
    return f"{sent.total:,} B left this device: {', '.join(parts)}. {_kept(sent)}"


def _kept(sent: SentBytes) -> str:
    quoting = bool(sent.earlier_turns or sent.exchange)
    text = "No text of your documents except what answers quote" if quoting else "No text of your documents"
    if sent.probabilities:
        return f"{text}. The probabilities tell about the documents that this device read."
    return f"{text}, and no probabilities."
