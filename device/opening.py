"""What a request asks of both sides, in the protocol's words."""

from __future__ import annotations

import secrets

from common.runtime.request import Request
from common.scheduling.policy import Estimates, first_aggregator
from device.checks import CODECS
from device.exchange import WHOLE_ANSWERS
from proto.messages import Open


def make_opening(request: Request, run_ahead: int, estimates: Estimates, eos: tuple[int, ...]) -> Open:
    """A new session with everything that fixes the answer's law.

    `run_ahead` is the most that the device wants, `eos` are its model's end-of-sequence ids.
    """
    whole = request.method in WHOLE_ANSWERS
    of_cloud = whole or request.sources == "cloud"
    return Open(
        session=secrets.randbelow(2**32 - 1) + 1,
        question=request.question,
        prompt=request.prompt,
        documents=request.documents,
        seed=secrets.randbits(63) if request.seed is None else request.seed,
        temperature=request.temperature,
        sampler=request.sampler,
        codec=request.codec or CODECS[request.sampler][0],
        entries=request.entries,
        exact=request.exact,
        top_p=request.top_p,
        # Alone, the cloud needs nobody's draft: it decides and announces.
        placement="cloud" if of_cloud else request.placement,
        sources="cloud" if of_cloud else "both",
        run_ahead=1 if request.method == "token-wise" else run_ahead,
        max_tokens=request.max_tokens,
        aggregation=request.aggregation,
        delivery="sequence" if whole else "tokens",
        trace=request.trace,
        first=first_aggregator(request.placement, estimates, paper=request.sampler == "paper"),
        eos=eos,
    )
