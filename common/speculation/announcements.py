"""What a session says of its drafts and decisions, and what it lets the other side say."""

from __future__ import annotations

from collections.abc import Sequence

from common.speculation.progress import Progress
from common.speculation.values import Action, Aggregation, LocalDraft, Send, SessionConfig
from proto.errors import malformed
from proto.messages import Draft, Message, Side, Sync, Target

TOKENS_PER_TARGET = 1024  # a longer run of decided tokens is announced in several messages


def draft_message(config: SessionConfig, epoch: int, draft: LocalDraft, payload: bytes) -> Draft:
    """A local draft for the other side."""
    return Draft(config.session, epoch, draft.position, draft.digest, draft.evidence, draft.decode_time, payload)


class Announcer:
    """Puts what a side knows of an answer into the messages that its placement lets it send."""

    def __init__(self, role: Side, progress: Progress, aggregation: Aggregation) -> None:
        self._role: Side = role
        self._progress = progress
        self._aggregation = aggregation

    def drafts(self, drafts: Sequence[LocalDraft]) -> list[Action]:
        """Drafts of this side, if they travel."""
        config, epoch = self._progress.config, self._progress.epoch
        if not config.shares(self._role):
            return []
        return [Send(draft_message(config, epoch, draft, self._aggregation.pack(draft.view))) for draft in drafts]

    def targets(self, term: int, start: int, tokens: Sequence[int], aggregator: Side) -> list[Action]:
        """Tokens that this side decided from position `start` on, if they are news to the other; `aggregator` is in
        charge after the last of them. The device always speaks for the answer.
        """
        config, size = self._progress.config, TOKENS_PER_TARGET
        if "cloud" not in config.participants or (self._role == "cloud" and config.placement == "mirrored"):
            return []
        return [
            Send(Target(config.session, term, start + offset, tuple(tokens[offset : offset + size]), aggregator))
            for offset in range(0, len(tokens), size)
        ]

    def sync(self, term: int, aggregator: Side, wants_reply: bool) -> Send:
        """The committed prefix."""
        tokens = tuple(self._progress.prefix.committed())
        return Send(Sync(self._progress.config.session, term, tokens, aggregator, wants_reply))


def check_tokens(message: Message, vocabulary: int) -> None:
    """Refuse decided tokens that no model can read: one of them fails the forward pass of every answer in it.

    Raises `ProtocolError`.
    """
    if isinstance(message, Target | Sync) and max(message.tokens, default=0) >= vocabulary:
        raise malformed(f"decided tokens must be of the vocabulary, below {vocabulary}")
