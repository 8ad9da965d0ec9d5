"""The list of decoding methods, the only importer of their packages."""

from __future__ import annotations

from common.methods.aggregate.method import Speculative
from common.methods.coupled.method import Coupled
from common.methods.edgellm.method import EdgeLlm, relief
from common.methods.interface import Method
from common.methods.paper.method import FetchKv, FetchText, SequenceWise, TokenWise, paper_sampler
from common.methods.rapid.method import LongContext, Rapid
from common.methods.rejection.method import Dsd, Dssd, Qsv
from proto.messages import Fetch, Open

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Speculative(paper_sampler),
        TokenWise(paper_sampler),
        SequenceWise(),
        FetchText(),
        FetchKv(),
        Dsd(relief),
        Dssd(relief),
        Qsv(relief),
        Coupled(relief),
        LongContext(paper_sampler),
        Rapid(relief),
        EdgeLlm(),
    )
}


def opened_by(request: Open | Fetch) -> Method:
    """Find the method of an opened session. Raises `ValueError`, one sentence, if unknown."""
    name = f"fetch-{request.form}" if isinstance(request, Fetch) else request.method
    method = METHODS.get(name)
    if method is None:
        raise ValueError(f"This cloud does not know the method {name!r}.")
    return method
