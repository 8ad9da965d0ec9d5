"""Construction of a session and its sampler from the message that opened it, the same on both sides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from common.daemon.handshake import proper_eos
from common.engine.model.decoder import Decoder
from common.engine.sampling import Drafter
from common.estimates.ahead import Ahead
from common.estimates.estimates import Estimates
from common.estimates.policy import placement_policy
from common.methods.aggregate.machine.session import Session
from common.methods.aggregate.machine.values import SessionConfig
from common.methods.aggregate.samplers.choice import make_aggregation
from proto.fields import Side
from proto.messages import Open


@dataclass(frozen=True, slots=True)
class SessionParts:
    """The parts of one answer on one side."""

    session: Session
    drafting: Drafter


def open_session(
    role: Side,
    request: Open,
    decoder: Decoder,
    estimates: Callable[[], Estimates],
    participants: frozenset[Side],
) -> SessionParts:
    """Build `role`'s half of the answer that `request` describes. Raises `ValueError` for what can't be served."""
    if not proper_eos(request.eos, decoder.vocabulary):
        raise ValueError("The end-of-sequence ids of an answer must be increasing and below the vocabulary.")
    aggregation = make_aggregation(role, request, decoder.vocabulary)
    # The paper's sampler comes with the paper's rule of placement.
    paper = request.sampler == "paper"
    policy = placement_policy(request.placement, request.seed, estimates, role, paper, request.first)
    config = SessionConfig(
        request.session,
        request.placement,
        frozenset(request.eos),
        request.max_tokens,
        decoder.vocabulary,
        participants,
    )
    return SessionParts(Session(role, config, aggregation, policy, Ahead(request.run_ahead)), aggregation)
