"""A feed's part in a forward pass, and the account of what passes were for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from common.engine.batcher import SHORT, Share
from common.engine.jobs import Job
from common.engine.model.packed import Item
from common.engine.sequences import Feed


@dataclass(frozen=True, slots=True)
class Entry:
    """A feed as it takes part in a pass, with how many of its tokens do."""

    job: Job
    feed: Feed
    tokens: int

    @property
    def item(self) -> Item:
        """The tokens to feed; logits are wanted once all of them are."""
        feed, left = self.feed, len(self.feed.tokens) - self.tokens
        parents = feed.parents if feed.parents is None or not left else feed.parents[:-left]
        return Item(feed.rows, feed.tokens[: self.tokens], 0 if left else feed.logits, parents)

    @property
    def step(self) -> bool:
        """Whether it is a decode step or verifies a proposal, rather than a prompt or a catch-up."""
        wanted = max(self.feed.logits, 1)
        return self.job.running and (len(self.feed.tokens) == 1 or (wanted > 1 and self.before < SHORT))

    @property
    def before(self) -> int:
        """Tokens per row before those whose distributions are wanted."""
        return len(self.feed.tokens) - self.feed.logits


@dataclass(slots=True)
class WorkDone:
    """Passes and tokens computed, and those computed in vain. Tokens count once per row."""

    passes: int = 0
    given_up: int = 0  # passes that ended between two layers
    rows: int = 0  # of whole passes
    tokens: int = 0  # fed in them
    seconds: float = 0.0  # of them
    stale: int = 0  # of them, those whose draft nobody wanted any more when the pass ended

    def __str__(self) -> str:
        share = self.stale / self.tokens if self.tokens else 0.0
        return (
            f"{self.passes} passes of {self.tokens / max(self.passes, 1):.1f} tokens, {share:.1%} of them for drafts "
            f"that were outdated when the pass ended; {self.given_up} passes given up"
        )


def prompt_tokens(entries: Sequence[Entry]) -> int:
    """Tokens of all rows that are not steps."""
    return sum(len(entry.feed.rows) * entry.tokens for entry in entries if not entry.step)


def in_order(feeds: Sequence[Feed], shares: Sequence[Share]) -> list[Share]:
    """The shares of a pass without those whose feed is behind others that the pass does not feed whole."""
    whole = {id(feeds[share.wish]) for share in shares if share.tokens == len(feeds[share.wish].tokens)}
    return [share for share in shares if whole.issuperset(map(id, feeds[share.wish].behind))]
