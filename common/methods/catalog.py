"""The list of decoding methods."""

from __future__ import annotations

from common.methods.aggregate.method import Speculative, TokenWise
from common.methods.drafted.coupled_method import Coupled
from common.methods.drafted.rapid_method import Rapid
from common.methods.drafted.rejection_method import Dsd, Dssd, Qsv
from common.methods.interface import Method
from common.methods.passages.fetch_method import FetchKv, FetchText
from common.methods.passages.long_context_method import LongContext
from common.methods.passages.sequence_wise_method import SequenceWise
from common.methods.trees.edgellm_method import EdgeLlm
from proto.messages import Fetch, Open

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Speculative(),
        TokenWise(),
        SequenceWise(),
        FetchText(),
        FetchKv(),
        Dsd(),
        Dssd(),
        Qsv(),
        Coupled(),
        LongContext(),
        Rapid(),
        EdgeLlm(),
    )
}


def opened_by(request: Open | Fetch) -> Method:
    """The method of a session that a device opens. Raises `ValueError`, one sentence, for an unknown one."""
    name = f"fetch-{request.form}" if isinstance(request, Fetch) else request.method
    method = METHODS.get(name)
    if method is None:
        raise ValueError(f"This cloud does not know the method {name!r}.")
    return method
