"""Checks of options that several methods share. Each raises `RequestError`, one sentence that names the field."""

from __future__ import annotations

from common.answer.errors import RequestError
from common.answer.request import Request
from common.processors.options import travelling
from proto.fields import Codec
from proto.limits import LONGEST_PROCESSORS

# The sampler's own first.
CODECS: dict[str, tuple[Codec, ...]] = {
    "race": ("race",),
    "paper": ("top-p", "raw"),
    "rejection": ("race",),
}
TOP_P = {"race": 1.0, "paper": 0.8, "rejection": 1.0}  # the samplers' own


def codec_of(request: Request) -> Codec:
    """The codec of the drafts that are sent."""
    return request.codec or CODECS[request.sampler][0]


def top_p_of(request: Request) -> float:
    """The mass of each side's mixture that is kept; 1: all of it."""
    return TOP_P[request.sampler] if request.top_p is None else request.top_p


def check_sampler(request: Request) -> None:
    """Refuse another sampler's codec; 'mirrored' but for the race, as only there both sides find the same token."""
    if request.sampler == "rejection":
        raise RequestError("Sampler 'rejection' is that of methods that draft and verify.", "sampler")
    allowed = CODECS[request.sampler]
    if request.codec is not None and request.codec not in allowed:
        raise RequestError(f"The {request.sampler} sampler sends {' or '.join(allowed)}, not {request.codec}.", "codec")
    if request.sampler == "paper" and request.placement == "mirrored":
        raise RequestError("Placement 'mirrored' needs the race sampler.", "placement")
    check_processors(request)


def check_processors(request: Request) -> None:
    """Refuse processors that are too long for the message that opens an answer."""
    if len(travelling(request).encode()) > LONGEST_PROCESSORS:
        raise RequestError(
            f"The format of the answer, its tools and the biases are too long: {LONGEST_PROCESSORS} bytes of JSON at "
            "most, without the descriptions in schemas.",
            "response_format" if request.calls is None else "tools",
        )


def check_documents(request: Request) -> None:
    """Refuse patterns and files of a side whose documents take no part."""
    for side, other, patterns in (
        ("device", "cloud", request.device_documents),
        ("cloud", "device", request.cloud_documents),
    ):
        if patterns and request.sources == other:
            raise RequestError(
                f"Sources {other!r} leave the {side}'s documents out: {side}_documents can't choose any of them.",
                f"{side}_documents",
            )
    if request.files and request.sources == "cloud":
        raise RequestError("Sources 'cloud' leave the device's documents out: there is no use for files.", "files")
    if request.files and not request.documents:
        raise RequestError("With documents = 0 none of the files would be read: leave one of the two out.", "documents")
    if request.files and request.device_documents:
        raise RequestError(
            "A request with files draws on no other documents of this device: leave device_documents out.",
            "device_documents",
        )


def check_both_sources(request: Request) -> None:
    """Refuse a request for one side's documents: the method needs both."""
    if request.sources != "both":
        raise RequestError(
            f"Method {request.method!r} joins both sides' documents: sources can't be {request.sources!r}.", "method"
        )


def check_logprobs(request: Request) -> None:
    """Refuse log-probabilities where the device does not see both sides' distributions before a token is decided."""
    if request.top_logprobs is None:
        return
    if request.sampler != "race" or request.placement != "device" or request.sources == "cloud":
        raise RequestError(
            "Log-probabilities need the race sampler, placement 'device', and sources 'both' or 'device'.", "logprobs"
        )
