"""The draft queues of one session (DRAGON §3: Draft Queues)."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from common.answer.values import View
from common.methods.aggregate.machine.values import LocalDraft, RemoteDraft

BRANCHES = 4  # remote drafts kept per position: prefixes that are still possible


class LocalDrafts:
    """This side's drafts beyond the committed prefix, one per position, each following the one before.

    The last `retain` decided drafts are kept: where both sides decide for themselves, the other side may be behind and
    still need them.
    """

    def __init__(self, retain: int) -> None:
        self._drafts: deque[LocalDraft] = deque()
        self._retired: deque[LocalDraft] = deque(maxlen=retain)

    def __len__(self) -> int:
        return len(self._drafts)

    def append(self, draft: LocalDraft) -> None:
        self._drafts.append(draft)

    def first(self) -> LocalDraft | None:
        return self._drafts[0] if self._drafts else None

    def last(self) -> LocalDraft | None:
        return self._drafts[-1] if self._drafts else None

    def accept(self) -> None:
        """Take the first draft, which is the target, out of the queue; the others stay."""
        self._retired.append(self._drafts.popleft())

    def reject(self) -> None:
        """Empty the queue: the first draft is not the target, and those after it follow a wrong token."""
        self._retired.append(self._drafts[0])
        self._drafts.clear()

    def clear(self) -> None:
        """Forget all drafts, decided ones included: the prefix itself was cut."""
        self._drafts.clear()
        self._retired.clear()

    def since(self, position: int) -> list[LocalDraft]:
        """The drafts from `position` on, decided ones that are kept included."""
        return [draft for draft in (*self._retired, *self._drafts) if draft.position >= position]

    def complete(self, position: int, digest: int, view: View) -> None:
        """Attach the looked-up `view` to the outstanding draft made at `position` after `digest`."""
        for index, draft in enumerate(self._drafts):
            if (draft.position, draft.digest) == (position, digest):
                self._drafts[index] = replace(draft, looked_up=view)

    def find(self, position: int, digest: int) -> LocalDraft | None:
        """The draft made at `position` after `digest`, outstanding or lately decided."""
        for draft in self.since(position):
            if draft.position == position and draft.digest == digest:
                return draft
        return None


class RemoteDrafts:
    """The other side's drafts, keyed by position and by the prefix that they were made after.

    A draft of a rejected prefix can't be found under the committed one, so it is never aggregated: that is the
    fence. The few newest prefixes of a position are kept, so a tree of drafts needs no other container.
    """

    def __init__(self) -> None:
        self._drafts: dict[int, dict[int, RemoteDraft]] = {}

    def put(self, position: int, digest: int, draft: RemoteDraft) -> None:
        branches = self._drafts.setdefault(position, {})
        branches.pop(digest, None)
        branches[digest] = draft
        if len(branches) > BRANCHES:
            del branches[next(iter(branches))]

    def get(self, position: int, digest: int) -> RemoteDraft | None:
        return self._drafts.get(position, {}).get(digest)

    def decide(self, position: int, digest: int) -> tuple[RemoteDraft | None, int]:
        """Remove the drafts for `position`; returns the one made after `digest`, and the number of the others."""
        branches = self._drafts.pop(position, {})
        draft = branches.pop(digest, None)
        return draft, len(branches)

    def clear(self) -> None:
        self._drafts.clear()
