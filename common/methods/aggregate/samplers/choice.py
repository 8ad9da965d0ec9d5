"""The sampler that a request names."""

from __future__ import annotations

from common.methods.aggregate.samplers.paper import PaperAggregation
from common.methods.aggregate.samplers.race import RaceAggregation
from common.sampling.paper import PaperSampler
from common.sampling.race import RaceSampler
from proto.fields import Side
from proto.messages import Open


def make_aggregation(role: Side, request: Open, vocabulary: int) -> RaceAggregation | PaperAggregation:
    """The sampler of `role` for one answer. Raises `ValueError`, one sentence, for options that don't go together."""
    if request.sampler == "race":
        if request.codec != "race":
            raise ValueError(f"the race sampler sends codec 'race', not {request.codec!r}")
        sampler = RaceSampler(request.seed, request.temperature, request.entries, vocabulary, request.likeliest)
        # If the device keeps its distributions to itself, its questions must not reveal them either.
        hide_ids = request.placement == role == "device"
        likeliest = request.likeliest if role == "device" else 0
        return RaceAggregation(sampler, vocabulary, request.exact, hide_ids, likeliest)
    if request.likeliest:
        raise ValueError("only the race sampler lists the most probable tokens")
    if request.placement == "mirrored":
        raise ValueError("placement 'mirrored' needs the race sampler: only there both sides find the same token")
    if request.codec == "race":
        raise ValueError("the paper's sampler sends codec 'top-p' or 'raw', not 'race'")
    paper = PaperSampler(request.seed, request.temperature, request.top_p, request.codec, vocabulary)
    return PaperAggregation(paper, role, request.codec, vocabulary)
