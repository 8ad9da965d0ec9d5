"""Look-ups carried out at once, where a test drives a session by hand."""

from __future__ import annotations

from collections.abc import Sequence

from common.methods.aggregate.session import Action, LookUp, Session


def settled(session: Session, actions: Sequence[Action]) -> list[Action]:
    """`actions` with every look-up replaced by what the session does once it is done."""
    done: list[Action] = []
    for action in actions:
        if isinstance(action, LookUp):
            payload = session.sampler.supply(action.view, action.ids, action.depth)
            done += settled(session, session.looked_up(action, payload))
        else:
            done.append(action)
    return done
