"""Checks of options that several methods share. Each raises `RequestError`, one sentence that names the field."""

from __future__ import annotations

from common.methods.request import Request
from common.runtime.errors import RequestError
from proto.messages import Codec

CODECS: dict[str, tuple[Codec, ...]] = {"race": ("race",), "paper": ("top-p", "raw")}  # the sampler's own first


def codec_of(request: Request) -> Codec:
    """The codec of the drafts that are sent."""
    return request.codec or CODECS[request.sampler][0]


def check_sampler(request: Request) -> None:
    """Refuse another sampler's codec; and 'mirrored' but for the race, as only there both sides find the same token."""
    allowed = CODECS[request.sampler]
    if request.codec is not None and request.codec not in allowed:
        raise RequestError(f"The {request.sampler} sampler sends {' or '.join(allowed)}, not {request.codec}.", "codec")
    if request.sampler == "paper" and request.placement == "mirrored":
        raise RequestError("Placement 'mirrored' needs the race sampler.", "placement")


def check_both_sources(request: Request) -> None:
    """Refuse a request for one side's documents: the method needs both."""
    if request.sources != "both":
        raise RequestError(
            f"Method {request.method!r} joins both sides' documents: sources can't be {request.sources!r}.", "method"
        )


def check_one_row(request: Request) -> None:
    """Refuse aggregation 'context' with both sources: it needs all documents on one side, here each keeps its own."""
    if request.aggregation == "context" and request.sources == "both":
        raise RequestError(
            "Aggregation 'context' needs one side that has all documents: sources 'device' or 'cloud', or method "
            "'fetch-text'.",
            "aggregation",
        )
