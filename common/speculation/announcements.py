"""What a session says of its drafts and decisions."""

from __future__ import annotations

from collections.abc import Sequence

from common.speculation.values import Action, LocalDraft, Send, SessionConfig
from proto.messages import Draft, Side, Target

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
