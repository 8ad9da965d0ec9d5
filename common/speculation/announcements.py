"""What a session says of its drafts and decisions, and what it lets the other side say."""

from __future__ import annotations

from collections.abc import Sequence

from common.speculation.values import Action, LocalDraft, Send, SessionConfig
from proto.errors import malformed
from proto.messages import Draft, Message, Side, Sync, Target

TOKENS_PER_TARGET = 1024  # a longer run of decided tokens is announced in several messages


def draft_message(config: SessionConfig, epoch: int, draft: LocalDraft, payload: bytes) -> Draft:
    """A local draft for the other side."""
    return Draft(config.session, epoch, draft.position, draft.digest, draft.evidence, draft.decode_time, payload)


def target_messages(
    config: SessionConfig, term: int, start: int, tokens: Sequence[int], aggregator: Side
) -> list[Action]:
    """Decided tokens from position `start` on; `aggregator` is in charge after the last of them."""
    size = TOKENS_PER_TARGET
    return [
        Send(Target(config.session, term, start + offset, tuple(tokens[offset : offset + size]), aggregator))
        for offset in range(0, len(tokens), size)
    ]


def check_tokens(message: Message, vocabulary: int) -> None:
    """Refuse decided tokens that no model can read: one of them fails the forward pass of every answer in it.

    Raises `ProtocolError`.
    """
    if isinstance(message, Target | Sync) and max(message.tokens, default=0) >= vocabulary:
        raise malformed(f"decided tokens must be of the vocabulary, below {vocabulary}")
