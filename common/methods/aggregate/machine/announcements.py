"""Messages that tell the other side of drafts and decisions, and a check of the decisions that it sends."""

from __future__ import annotations

from collections.abc import Sequence

from common.answer.values import Send
from common.methods.aggregate.machine.state import SessionState
from common.methods.aggregate.machine.values import Action, LocalDraft, SessionConfig, SessionSampler
from proto.errors import malformed
from proto.fields import Side
from proto.messages import Draft, Message, Sync, Target

TOKENS_PER_TARGET = 1024  # a longer run of decided tokens is announced in several messages


def draft_message(config: SessionConfig, epoch: int, draft: LocalDraft, payload: bytes) -> Draft:
    """A local draft for the other side."""
    return Draft(config.session, epoch, draft.position, draft.digest, draft.evidence, draft.decode_time, payload)


class Announcer:
    """Makes the messages with a side's drafts and decisions, as far as the placement lets it send them."""

    def __init__(self, role: Side, progress: SessionState, aggregation: SessionSampler) -> None:
        self._role: Side = role
        self._state = progress
        self._aggregation = aggregation

    def drafts(self, drafts: Sequence[LocalDraft]) -> list[Action]:
        """Messages with drafts of this side; none where the placement keeps them here."""
        config, epoch = self._state.config, self._state.epoch
        if not config.shares(self._role):
            return []
        return [Send(draft_message(config, epoch, draft, self._aggregation.pack(draft.view))) for draft in drafts]

    def targets(self, term: int, start: int, tokens: Sequence[int], aggregator: Side) -> list[Action]:
        """Messages with the tokens that this side decided from `start` on; `aggregator` decides the next position.

        Under placement 'mirrored' both sides decide and only the device announces. None if the cloud takes no part.
        """
        config, size = self._state.config, TOKENS_PER_TARGET
        if "cloud" not in config.participants or (self._role == "cloud" and config.placement == "mirrored"):
            return []
        return [
            Send(Target(config.session, term, start + offset, tuple(tokens[offset : offset + size]), aggregator))
            for offset in range(0, len(tokens), size)
        ]

    def sync(self, term: int, aggregator: Side, wants_reply: bool) -> Send:
        """The message with the committed prefix."""
        tokens = tuple(self._state.prefix.committed())
        return Send(Sync(self._state.config.session, term, tokens, aggregator, wants_reply))


def check_tokens(message: Message, vocabulary: int) -> None:
    """Refuse decided tokens beyond the vocabulary: one of them fails the forward pass of all answers in the batch.

    Raises `ProtocolError`.
    """
    if isinstance(message, Target | Sync) and max(message.tokens, default=0) >= vocabulary:
        raise malformed(f"decided tokens must be of the vocabulary, below {vocabulary}")
