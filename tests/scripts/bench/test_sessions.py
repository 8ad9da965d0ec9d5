"""The sessions suite: played devices answer on a real cloud. How fast anything is, is not tested."""

from __future__ import annotations

import pytest

from proto.messages import Closed
from scripts.bench.sessions.player import Played
from scripts.bench.sessions.suite import gaps_within, steady_time, within

pytestmark = pytest.mark.suite

CLOSED = Closed(1, 0, 0, 0, 0, 0, 0)


def played(*times: float) -> Played:
    return Played(0.0, times, tuple(range(len(times))), 40, None, CLOSED)


class TestSteadyTime:
    def test_is_while_every_session_decodes(self) -> None:
        found = [played(1.0, 2.0, 3.0, 4.0), played(1.5, 2.5, 3.5, 4.5)]
        steady = steady_time(found, settling=1)
        assert steady == (2.5, 4.0)
        assert [within(one, steady) for one in found] == [2, 1]
        assert [gaps_within(one, steady) for one in found] == [[1.0], [1.0]]

    def test_is_nothing_where_one_begins_after_another_has_ended(self) -> None:
        with pytest.raises(RuntimeError, match="steady"):
            steady_time([played(1.0, 2.0), played(2.0, 3.0)], settling=0)
