"""Malformed messages of a peer: each is refused, and leaves the session as it was."""

from __future__ import annotations

import pytest

from common.estimates.estimators import SpeculationLimits
from common.estimates.policy import FixedSide
from common.methods.aggregate.session import Session, SessionConfig
from common.sampling.race import RaceSampler
from proto.errors import ProtocolError
from proto.messages import Message, Side, Sync, Target

VOCABULARY = 12
OTHER: dict[Side, Side] = {"device": "cloud", "cloud": "device"}


def following(role: Side) -> Session:
    """A session whose other side is in charge."""
    config = SessionConfig(1, OTHER[role], frozenset(), 16, VOCABULARY)
    aggregation = RaceSampler(1, 1.0, 4, VOCABULARY)
    return Session(role, config, aggregation, FixedSide(OTHER[role]), SpeculationLimits(4))


@pytest.mark.parametrize("role", ["device", "cloud"])
class TestTokensBeyondTheVocabulary:
    """Fed to a model, one of them ends every answer of the forward pass."""

    @pytest.mark.parametrize("token", [VOCABULARY, 2**24 - 1])
    @pytest.mark.parametrize("term", [0, 1])
    def test_are_refused(self, role: Side, token: int, term: int) -> None:
        session = following(role)
        session.received(Target(1, 0, 0, (3,), OTHER[role]))
        messages: list[Message] = [
            Target(1, term, 1, (5, token), OTHER[role]),
            Sync(1, term, (3, 5, token), OTHER[role], True),
        ]
        for message in messages:
            with pytest.raises(ProtocolError, match=f"below {VOCABULARY}") as refused:
                session.received(message)
            assert str(2**24 - 1) not in str(refused.value)
            assert (session.committed, session.term, session.aggregator) == ((3,), 0, OTHER[role])

    def test_the_last_one_of_the_vocabulary_is_not(self, role: Side) -> None:
        session = following(role)
        session.received(Target(1, 0, 0, (VOCABULARY - 1,), OTHER[role]))
        session.received(Sync(1, 0, (VOCABULARY - 1, 0), OTHER[role], False))
        assert session.committed == (VOCABULARY - 1, 0)
