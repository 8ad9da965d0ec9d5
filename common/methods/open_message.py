"""The message that opens the session of a request."""

from __future__ import annotations

import secrets

from common.answer.request import Request, own_options
from common.estimates.policy import Estimates, first_aggregator
from common.methods.interface import Method, codec_of, top_p_of
from common.processors.calls import encode_options
from proto.messages import DRAWN_SEEDS, Open

# Above clients' limit, because a favourite missing in the other side's list counts as 0.
LISTED_FOR_LOGPROBS = 64


def session_number() -> int:
    """A random number, 32 bits and not 0, which reveals nothing."""
    return secrets.randbelow(2**32 - 1) + 1


def open_message(
    method: Method,
    request: Request,
    run_ahead: int,
    estimates: Estimates,
    eos: tuple[int, ...],
    session: int | None = None,
) -> Open:
    """Make a session with all parameters of the answer's distribution.

    `run_ahead` limits the device's undecided drafts. `eos` are its model's end-of-sequence ids. None draws a `session`
    number.
    """
    opening = Open(
        session=session_number() if session is None else session,
        method=method.name,
        question=request.question,
        prompt=request.prompt,
        documents=request.documents,
        seed=secrets.randbelow(DRAWN_SEEDS) if request.seed is None else request.seed,
        temperature=request.temperature,
        sampler=request.sampler,
        codec=codec_of(request),
        entries=request.entries,
        exact=request.exact,
        top_p=top_p_of(request),
        placement=request.placement,
        sources="both",
        run_ahead=run_ahead,
        max_tokens=request.max_tokens,
        aggregation=request.aggregation,
        trace=request.trace,
        first=first_aggregator(request.placement, estimates, paper=request.sampler == "paper"),
        eos=eos,
        options=own_options(request),
        controls=request.controls,
        likeliest=0 if request.top_logprobs is None else LISTED_FOR_LOGPROBS,
        processors=encode_options(request),
        earlier=request.earlier,
        only=request.cloud_documents,
        documents_at=request.documents_at,
    )
    return method.opening(request, opening)
