"""Notes of one side about an answer, and the bound on their number."""

from __future__ import annotations

from itertools import count

from common.answer.recorder import Recorder
from common.answer.values import Commit, Send, Withdraw
from common.estimates.policy import Estimates
from proto.messages import Close, Draft, Sync, Target
from proto.payloads.trace import Span, decode_spans, encode_spans

ESTIMATES = Estimates(0.5, 0.25, 0.125, 0.75, 1.0)
VALUES = (0.5, 0.25, 0.125, 0.75, 1.0)
DRAFT = Draft(1, 3, 8, 5, 0.0, 100, b"secret")


def recorder(most: int = 100, alone: bool = False) -> Recorder:
    return Recorder("device", lambda: ESTIMATES, "device", alone, most, count(1000).__next__)


def commit(position: int, device: bool | None, cloud: bool | None, share: float | None = 0.5) -> Commit:
    verdicts = {"device": device, "cloud": cloud}
    accepted = {side: verdict for side, verdict in verdicts.items() if verdict is not None}
    return Commit(position, 4242, False, share, None, accepted)  # type: ignore[arg-type]


def test_a_decision_is_noted_with_what_caused_it_and_what_was_known() -> None:
    noting = recorder()
    noting.message("receive", DRAFT, 500)
    noting.acted([commit(8, True, False), Send(Target(1, 0, 8, (4242, 4243), "cloud"))], "cloud", 9)
    noting.acted([], "cloud", 9)
    assert noting.spans == [
        Span("receive", "draft", 8, 500, 500, 3),
        Span("aggregate", "both", 8, 500, 1000, accepted=(True, False), estimates=VALUES),
        Span("send", "target", 8, 1000, 1000, 0, 2),
        Span("migrate", "cloud", 9, 1000, 1000),
    ]


def test_an_announced_decision_is_no_aggregation_and_a_rejected_draft_is_a_roll_back() -> None:
    noting = recorder()
    noting.acted([commit(3, False, None, share=None), Withdraw(2)], "device", 2)
    assert noting.spans == [
        Span("follow", "", 3, 1000, 1000, accepted=(False, None)),
        Span("roll back", "", 3, 1000, 1000),
        Span("roll back", "", 2, 1000, 1000),
    ]


def test_who_answers_alone_decides() -> None:
    noting = recorder(alone=True)
    noting.step("drafted", 0, 0, 10, 90)
    noting.acted([commit(0, True, None, share=None)], "device", 1)
    assert noting.spans[1] == Span("aggregate", "alone", 0, 90, 1000, accepted=(True, None), estimates=VALUES)


def test_no_more_than_the_bound_is_kept_and_the_rest_is_counted() -> None:
    noting = recorder(most=5)
    for position in range(12):
        noting.step("drafted", position, 0, 0, 1)
    assert len(noting.spans) == 5
    assert noting.dropped == 7


def test_messages_that_belong_to_no_token_are_not_noted_and_all_others_can_be_sent() -> None:
    noting = recorder()
    noting.message("send", Close(1, 5))
    assert noting.spans == []
    noting.message("send", Sync(1, 0, (1, 2, 3), "device", True))
    noting.message("receive", Target(1, 0, 3, (), "device"))  # a hostile one, of no tokens
    noting.since("prefill", 5)
    assert decode_spans(encode_spans(noting.spans)) == noting.spans
