"""Drives two sessions through a random interleaving of everything that can happen next. No clock, no loss."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence

from common.answer.values import Send, SideDraft, View
from common.methods.aggregate.session import Action, Session
from proto.messages import Message, Side

Predict = Callable[[Side, int, Sequence[int]], tuple[View, float]]


def run(
    device: Session,
    cloud: Session,
    predict: Predict,
    order: random.Random,
    sent: Sequence[Action] = (),
    until: int | None = None,
) -> tuple[int, ...]:
    """The device's answer. Decode steps, and messages in the order they were sent, happen in random order.

    `sent` are actions of the device that the cloud has not heard of. Ends early at `until` committed tokens.
    """
    sessions: dict[Side, Session] = {"device": device, "cloud": cloud}
    inbox: dict[Side, deque[Message]] = {"device": deque(), "cloud": deque()}

    def carry_out(side: Side, actions: list[Action]) -> None:
        other: Side = "cloud" if side == "device" else "device"
        inbox[other].extend(action.message for action in actions if isinstance(action, Send))

    def decode(side: Side) -> None:
        session = sessions[side]
        work = session.work
        if work is not None:
            for (position, digest), path in zip(work.prefixes, work.paths, strict=True):
                view, evidence = predict(side, position, path)
                carry_out(side, session.drafted(SideDraft(view, evidence, position=position, digest=digest)))

    carry_out("device", list(sent))
    while device.finished is None and (until is None or device.position < until):
        possible: list[tuple[str, Side]] = []
        for side, session in sessions.items():
            if session.work is not None:
                possible.append(("decode", side))
            if inbox[side]:
                possible.append(("deliver", side))
        if not possible:
            raise AssertionError("both sides wait for each other")
        event, side = possible[int(order.random() * len(possible))]
        if event == "decode":
            decode(side)
        else:
            carry_out(side, sessions[side].received(inbox[side].popleft()))
    return device.committed
