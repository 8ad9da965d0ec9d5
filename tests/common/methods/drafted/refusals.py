"""Messages that no drafter or verifier can have sent, and what becomes of them."""

from __future__ import annotations

from typing import Any

import pytest

from proto.codes import digest
from proto.errors import ProtocolError
from proto.messages import Propose, Verdict
from tests.common.methods.drafted.pump import Pair

SESSION = 1


def propose(tokens: tuple[int, ...], payload: bytes = b"", **fields: Any) -> Propose:
    """The first proposal of an answer, but for `fields`."""
    given: dict[str, Any] = {"round": 1, "position": 0, "digest": (digest(()),), "tail": ()} | fields
    return Propose(SESSION, tokens=tokens, payload=payload, **given)


def refused_by_the_verifier(pair: Pair, message: Propose, said: str) -> None:
    """Check that it refuses `message`, in words that match `said`, and that nothing has changed."""
    before = pair.cloud.work()
    with pytest.raises(ProtocolError, match=said):
        pair.cloud.proposed(message, 0.0)
    assert pair.cloud.work() == before
    assert len(pair.run()) > 0  # the drafter that it has meanwhile is served


def refused_by_the_drafter(pair: Pair, said: str, **fields: Any) -> None:
    """The same of a verdict on its first proposal; `fields` are those that are not what a healthy verifier says."""
    while not pair.up:
        pair.draft()
    given: dict[str, Any] = {"accepted": 4, "token": (1,), "verify_time": 0, "payload": b""} | fields
    with pytest.raises(ProtocolError, match=said):
        pair.device.judged(Verdict(SESSION, 1, 0, **given))
    assert pair.tokens == []
    assert len(pair.run()) > 0
