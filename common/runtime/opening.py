"""How an `Open` becomes a session: the sampler, the placement and the run-ahead both sides agree on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from common.model.decoder import Decoder
from common.runtime.decoding import Drafting
from common.sampling.aggregation import Sampling, make_sampling
from common.scheduling.policy import Estimates, placement_policy
from common.speculation.session import Session
from common.speculation.values import SessionConfig
from proto.messages import Open, Side


@dataclass(frozen=True, slots=True)
class Opened:
    """The parts of one answer on one side."""

    session: Session
    drafting: Drafting


def open_session(
    role: Side,
    request: Open,
    decoder: Decoder,
    estimates: Callable[[], Estimates],
    participants: frozenset[Side],
) -> Opened:
    """Build `role`'s half of the answer that `request` describes. Raises `ValueError` for what can't be served."""
    sampling: Sampling = make_sampling(role, request, decoder.vocabulary, decoder.torch_device)
    policy = placement_policy(request.placement, request.seed, estimates)
    config = SessionConfig(request.session, request.placement, decoder.eos, request.max_tokens, participants)
    session = Session(role, config, sampling.aggregation, policy, request.run_ahead)
    return Opened(session, sampling.drafting)
