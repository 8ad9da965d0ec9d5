"""Messages of open sessions: taken in at once, or, if that takes long, when it is their device's turn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from common.answer.errors import NoPlace
from common.daemon.fair_thread import FairThread
from common.methods.interface import CloudHalf
from common.transport.interface import Peer, owner
from proto.messages import Message

Key = tuple[Peer, int]  # peer, session

CROWDED = 1.0  # seconds after which a device that sends more than is worked through for it may try again


class Inbox:
    """For the link's thread, which must not wait. What goes wrong ends its session, and no other."""

    def __init__(
        self,
        thread: FairThread,
        find: Callable[[Key], CloudHalf | None],
        fail: Callable[[Key, CloudHalf, Exception], object],
    ) -> None:
        """`find` tells the session that is open, `fail` ends one."""
        self._thread = thread
        self._find = find
        self._fail = fail

    def deliver(self, key: Key, session: CloudHalf, message: Message, size: int) -> None:
        """Hand a message of so many bytes to its session."""
        if not session.slow:
            self._guarded(key, session, partial(session.receive, message))
        elif self._guarded(key, session, partial(session.check, message)):
            self.later(key, session, size, partial(session.receive, message))

    def later(self, key: Key, session: CloudHalf, size: int, run: Callable[[], object]) -> None:
        """Have `run` done, which holds `size` bytes, behind what its device has sent before, unless the session ends.

        A device that has too much waiting already gets `Busy`.
        """

        def unless_over() -> None:
            if self._find(key) is session:
                self._guarded(key, session, run)

        if not self._thread.submit(owner(key[0]), size, unless_over, partial(self._fail, key, session)):
            self._fail(key, session, NoPlace(CROWDED))

    def _guarded(self, key: Key, session: CloudHalf, run: Callable[[], object]) -> bool:
        """Whether `run` went well."""
        try:
            run()
        except Exception as error:
            self._fail(key, session, error)
            return False
        return True
