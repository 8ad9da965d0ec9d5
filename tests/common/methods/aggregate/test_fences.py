"""Messages that a session does not let in, and state that it forgets: each bound and counter step by itself."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np
import pytest
import torch

from common.answer.driver import NullObserver
from common.answer.values import Commit, Send, SideDraft
from common.estimates.estimators import SpeculationLimits
from common.estimates.policy import FixedSide
from common.methods.aggregate.driver import SessionDriver
from common.methods.aggregate.session import Action, Session, SessionConfig
from common.sampling.race import RaceSampler
from proto.codes import EMPTY, digest
from proto.messages import Draft, Message, Placement, Side, Sync, Target

VOCABULARY = 600
WINDOW = 256
BRANCHES = 64


def session(role: Side, placement: Placement, run_ahead: int = 4) -> Session:
    aggregation = RaceSampler(1, 0.0, 4, VOCABULARY)
    config = SessionConfig(1, placement, frozenset(), 1000, VOCABULARY)
    return Session(
        role,
        config,
        aggregation,
        FixedSide("cloud" if placement == "cloud" else "device"),
        SpeculationLimits(run_ahead),
    )


def certain(token: int) -> torch.Tensor:
    """Distribution with all of the probability on `token`."""
    return torch.from_numpy(np.eye(VOCABULARY, dtype=np.float32)[token])


def remote(subject: Session, position: int, prefix: int, token: int) -> Draft:
    """The other side's draft after the prefix with the digest `prefix`."""
    aggregation = subject.sampler
    assert isinstance(aggregation, RaceSampler)
    payload = aggregation.pack(aggregation.drafted(position, certain(token), None))
    return Draft(1, 0, position, prefix, 0.0, 0, payload)


def decode(subject: Session, token: int) -> list[Action]:
    """This side's next step, which drafts `token`."""
    work, aggregation = subject.work, subject.sampler
    assert work is not None
    assert isinstance(aggregation, RaceSampler)
    view = aggregation.drafted(work.position, certain(token), None)
    return subject.drafted(SideDraft(view, 0.0, position=work.position, digest=work.digest))


def sent(actions: list[Action]) -> list[Message]:
    return [action.message for action in actions if isinstance(action, Send)]


class TestTerm:
    """Within a term only the aggregator decides, and a `Target` of another term decides nothing."""

    def test_what_the_cloud_decided_before_a_take_over_is_dropped(self) -> None:
        device = session("device", "cloud")
        decode(device, 5)
        device.out_of_patience()
        device.received(Sync(1, 1, (5,), "device", False))  # it follows, and is given its role back in another term
        assert (device.aggregator, device.term, list(device.committed)) == ("cloud", 2, [5])
        for term in (0, 1, 3):
            stale = device.counters.stale
            assert device.received(Target(1, term, 1, (7,), "cloud")) == []
            assert device.counters.stale == stale + 1
        assert list(device.committed) == [5]
        device.received(Target(1, 2, 1, (8,), "cloud"))
        assert list(device.committed) == [5, 8]

    def test_what_the_device_decides_in_a_term_that_the_cloud_has_not_heard_of_waits_for_its_sync(self) -> None:
        """The cloud may have decided other tokens: the prefix comes first."""
        cloud = session("cloud", "device")
        cloud.received(Target(1, 0, 0, (5,), "device"))
        assert cloud.received(Target(1, 1, 1, (7,), "device")) == []
        assert (list(cloud.committed), cloud.counters.stale) == ([5], 1)
        cloud.received(Sync(1, 1, (6, 7), "device", False))
        assert list(cloud.committed) == [6, 7]


class TestWindow:
    def test_drafts_up_to_it_are_kept_and_no_others(self) -> None:
        device = session("device", "device")
        path = list(range(WINDOW))
        device.received(remote(device, WINDOW, digest(path), 1))
        assert device.counters.stale == 1
        device.received(remote(device, WINDOW - 1, digest(path[:-1]), 1))
        assert device.counters.stale == 1
        assert device.remote.get(WINDOW - 1, digest(path[:-1])) is not None
        assert device.remote.get(WINDOW, digest(path)) is None

    def test_it_moves_with_the_answer(self) -> None:
        cloud = session("cloud", "cloud")
        far = remote(cloud, WINDOW, 17, 1)
        cloud.received(far)
        assert cloud.remote.get(WINDOW, 17) is None
        cloud.received(remote(cloud, 0, EMPTY, 5))
        decode(cloud, 5)
        assert cloud.position == 1
        cloud.received(far)
        assert cloud.remote.get(WINDOW, 17) is not None


class TestDecidedDrafts:
    """A draft holds a distribution over the whole vocabulary: an answer must not gather one for every token."""

    DECIDED = 10

    def decided(self, role: Side) -> list[int]:
        """Positions whose drafts are kept when both sides have drafted them alike and decide for themselves."""
        subject = session(role, "mirrored")
        for position in range(self.DECIDED):
            decode(subject, 5)
            subject.received(remote(subject, position, digest([5] * position), 5))
        assert subject.position == self.DECIDED
        self.subject = subject
        return self.kept()

    def kept(self) -> list[int]:
        return [draft.position for draft in self.subject.local.since(0)]

    def test_the_device_keeps_none(self) -> None:
        assert self.decided("device") == []

    def test_the_cloud_keeps_those_that_the_device_may_lack(self) -> None:
        assert self.decided("cloud") == list(range(self.DECIDED))
        self.subject.received(Target(1, 0, 0, (5,) * 7, "device"))
        assert self.kept() == [7, 8, 9]
        self.subject.received(Sync(1, 0, (5,) * 9, "device", False))
        assert self.kept() == [9]


class TestBranches:
    def test_the_newest_few_prefixes_of_a_position_are_kept(self) -> None:
        for token in range(BRANCHES + 2):
            device = session("device", "device")
            for other in range(BRANCHES + 2):
                device.received(remote(device, 1, digest([other]), 9))
            device.received(remote(device, 0, EMPTY, token))
            decode(device, token)
            decode(device, 9)
            assert device.committed == ((token, 9) if token >= 2 else (token,)), token


class StopsBehind(NullObserver):
    """Meets a stop string when it has taken so many tokens."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens

    def committed(self, commit: Commit) -> bool:
        return commit.position + 1 < self._tokens


class Idle:
    """Implements `ModelThread`; nobody decodes."""

    def wake(self) -> None:
        pass

    def on_model_thread(self, run: Callable[[], None], tenant: Hashable = None) -> None:
        pass


class TestStopped:
    @pytest.mark.parametrize(("shown", "told"), [(1, (5,)), (2, (5, 5)), (4, (5, 5, 5))])
    def test_tokens_behind_a_stop_string_are_not_told(self, shown: int, told: tuple[int, ...]) -> None:
        """Three are decided at once; the end of the answer is told by `Close`."""
        device, messages = session("device", "device"), list[Message]()
        driver = SessionDriver(device, messages.append, StopsBehind(shown), lambda commit: None, Idle())
        for _ in range(3):
            decode(device, 5)
        for position in (1, 2, 0):
            driver.receive(remote(device, position, digest([5] * position), 5))
        assert [each.tokens for each in messages if isinstance(each, Target)] == [told]
        assert driver.over == (shown < 4)


class TestEpoch:
    @pytest.mark.parametrize("placement", ["device", "mirrored"])
    def test_a_rejection_makes_the_steps_under_way_useless(self, placement: Placement) -> None:
        """The decoder gives a step up when the epoch is another one than when it began."""
        cloud = session("cloud", placement)
        decode(cloud, 5)
        decode(cloud, 6)
        under_way = cloud.work
        assert under_way is not None
        assert (under_way.epoch, under_way.position) == (0, 2)
        cloud.received(Target(1, 0, 0, (5,), "device"))  # was its draft
        assert cloud.epoch == under_way.epoch
        cloud.received(Target(1, 0, 1, (7,), "device"))  # was not
        assert cloud.epoch == under_way.epoch + 1
        work = cloud.work
        assert work is not None
        assert (work.epoch, work.position, work.digest) == (1, 2, digest([5, 7]))

    def test_drafts_say_of_which_epoch_they_are(self) -> None:
        cloud = session("cloud", "device")
        epochs = [message.epoch for message in sent(decode(cloud, 5)) if isinstance(message, Draft)]
        cloud.received(Target(1, 0, 0, (7,), "device"))
        epochs += [message.epoch for message in sent(decode(cloud, 5)) if isinstance(message, Draft)]
        assert epochs == [0, 1]
