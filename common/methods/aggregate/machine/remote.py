"""The other side's drafts of one session (DRAGON §3: Draft Queues)."""

from __future__ import annotations

from common.methods.aggregate.machine.values import RemoteDraft

BRANCHES = 64  # drafts kept per position: prefixes that are still possible
MOST = 1024  # drafts kept in all
MOST_BYTES = 2**26  # that they take, but for one draft, which may take more
ENOUGH_BYTES = 3 * 2**24  # of undecided drafts: with so many, a side makes no more before some are decided


class RemoteDrafts:
    """The other side's drafts, keyed by position and by the prefix that they were made after.

    A draft of a rejected prefix can't be found under the committed one, so it is never aggregated: that is the
    fence. Of each position the newest prefixes are kept, so a tree of drafts needs no other container.
    """

    def __init__(self) -> None:
        self._drafts: dict[int, dict[int, RemoteDraft]] = {}
        self._count = 0
        self._bytes = 0

    def put(self, position: int, digest: int, draft: RemoteDraft) -> None:
        branches = self._drafts.setdefault(position, {})
        former = branches.pop(digest, None)
        self._count += former is None
        self._bytes += draft.footprint - (0 if former is None else former.footprint)
        branches[digest] = draft
        if len(branches) > BRANCHES:
            self._drop_oldest(position)
        while self._count > MOST or (self._bytes > MOST_BYTES and self._count > 1):
            self._drop_oldest(max(self._drafts))  # of the position that is decided last

    def get(self, position: int, digest: int) -> RemoteDraft | None:
        return self._drafts.get(position, {}).get(digest)

    def decide(self, position: int, digest: int) -> tuple[RemoteDraft | None, int]:
        """Remove the drafts for `position`; returns the one made after `digest`, and the number of the others."""
        branches = self._drafts.pop(position, {})
        self._count -= len(branches)
        self._bytes -= sum(each.footprint for each in branches.values())
        draft = branches.pop(digest, None)
        return draft, len(branches)

    def clear(self) -> None:
        self._drafts.clear()
        self._count = self._bytes = 0

    def _drop_oldest(self, position: int) -> None:
        branches = self._drafts[position]
        dropped = branches.pop(next(iter(branches)))
        self._count -= 1
        self._bytes -= dropped.footprint
        if not branches:
            del self._drafts[position]
