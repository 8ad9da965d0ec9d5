"""What a request must fulfil before anything is done about it."""

from __future__ import annotations

from common.runtime.request import Request, RequestError
from device.exchange import decides_alone
from device.settings import DeviceSettings
from proto.messages import Codec

LONGEST_QUESTION = 2**14 - 1  # bytes of UTF-8, as the protocol has it
MOST_DOCUMENTS = 64
CODECS: dict[str, tuple[Codec, ...]] = {"race": ("race",), "paper": ("top-p", "raw")}


def check(request: Request, settings: DeviceSettings) -> None:
    """Raises `RequestError`, one sentence that names the field, for what can't be served."""
    if not request.question.strip():
        raise RequestError("The question is empty.", "prompt")
    if len(request.prompt.encode()) > LONGEST_QUESTION:
        raise RequestError(f"The question is longer than {LONGEST_QUESTION} bytes.", "prompt")
    if not 1 <= request.max_tokens <= settings.max_tokens:
        raise RequestError(
            f"max_tokens is {request.max_tokens}; this device allows 1 to {settings.max_tokens}.", "max_tokens"
        )
    if not 0.0 <= request.temperature <= 2.0:
        raise RequestError(f"temperature is {request.temperature}; it must be from 0 to 2.", "temperature")
    if not 1 <= request.documents <= MOST_DOCUMENTS:
        raise RequestError(
            f"documents is {request.documents}; from 1 to {MOST_DOCUMENTS} can be retrieved per side.", "documents"
        )
    if not 1 <= request.entries <= 4096:
        raise RequestError(f"entries is {request.entries}; it must be from 1 to 4096.", "entries")
    if not 0.0 < request.top_p <= 1.0:
        raise RequestError(f"top_p is {request.top_p}; it must be above 0 and at most 1.", "top_p")
    if request.seed is not None and not 0 <= request.seed < 2**64:
        raise RequestError("seed must be from 0 to 2**64 - 1.", "seed")
    _check_sampler(request)
    _check_method(request)
    _check_privacy(request, settings)


def _check_sampler(request: Request) -> None:
    allowed = CODECS[request.sampler]
    if request.codec is not None and request.codec not in allowed:
        raise RequestError(f"The {request.sampler} sampler sends {' or '.join(allowed)}, not {request.codec}.", "codec")
    if request.sampler == "paper" and request.placement == "mirrored":
        raise RequestError("Placement 'mirrored' needs the race sampler.", "placement")


def _check_method(request: Request) -> None:
    if request.method != "speculative" and request.sources != "both":
        raise RequestError(
            f"Method {request.method!r} joins both sides' documents: sources can't be {request.sources!r}.", "method"
        )
    if request.aggregation == "output":
        return
    if request.method == "fetch-kv":
        raise RequestError(
            "Aggregation 'context' puts all documents into one row, where the keys and values that the cloud computed "
            "for each by itself don't hold: use method 'fetch-text'.",
            "aggregation",
        )
    if request.sources == "both" and request.method != "fetch-text":
        raise RequestError(
            "Aggregation 'context' needs one side that has all documents: sources 'device' or 'cloud', or method "
            "'fetch-text'.",
            "aggregation",
        )


def _check_privacy(request: Request, settings: DeviceSettings) -> None:
    """The device's setting is the limit: a request may only ask for more privacy."""
    levels = ("offline", "strict", "balanced")
    if levels.index(request.privacy) > levels.index(settings.privacy):
        raise RequestError(
            f"This device is set to privacy {settings.privacy!r}; a request can't loosen it to {request.privacy!r}.",
            "privacy",
        )
    if request.sources == "cloud" and request.privacy == "offline":
        raise RequestError("Privacy 'offline' keeps the question here: sources can't be 'cloud'.", "sources")
    drafts_of_both = request.sources == "both" and not decides_alone(request)
    if drafts_of_both and request.privacy == "strict" and request.placement != "device":
        raise RequestError(
            f"Placement {request.placement!r} sends numbers computed from private documents to the cloud: it "
            "needs privacy 'balanced'; 'strict' allows placement 'device' only.",
            "placement",
        )
