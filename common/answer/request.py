"""A question with its options, and the errors that can end it.

The limits here also apply to HTTP and the command line.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import from_json

from common.processors.calls import ProcessorOptions
from proto.errors import ProtocolError
from proto.messages import (
    MOST_DOCUMENTS,
    MOST_ENTRIES,
    MOST_TOKENS,
    SEEDS,
    TEMPERATURE,
    Aggregation,
    Busy,
    Codec,
    Control,
    Error,
    Fetch,
    Open,
    Placement,
    Sampler,
)
from proto.patterns import check_patterns

Sources = Literal["both", "device", "cloud"]
Unmatched = Literal["warn", "refuse", "answer"]
Privacy = Literal["strict", "balanced", "secret", "offline"]
PRIVACY_LEVELS: tuple[Privacy, ...] = ("offline", "secret", "strict", "balanced")  # most private first

MOST_STOPS = 4  # per request
LONGEST_STOP = 1024  # characters
MOST_FILES = 16  # per request
LONGEST_FILE_NAME = 255  # characters
AGGREGATION = "output: one row per document; context: one row, read at once; blocks: one row, from stored blocks"
MOST_LOGPROBS = 20  # per token


def known_temperature(value: float | None) -> float | None:
    """Refuse an unknown temperature; one below the samplers' resolution becomes 0."""
    if value is not None and 0 <= value < TEMPERATURE.low:
        return 0.0
    if value is not None and not TEMPERATURE.allows(value):
        raise ValueError(f"must be from 0 to {TEMPERATURE.high:g}")
    return value


def _stop_strings(value: object) -> object:
    texts = [value] if isinstance(value, str) else value
    known = isinstance(texts, list | tuple) and all(isinstance(text, str) for text in texts)
    if not isinstance(texts, list | tuple) or not known or len(texts) > MOST_STOPS:
        raise ValueError(f"expected a string or an array of up to {MOST_STOPS} strings")
    if not all(0 < len(text) <= LONGEST_STOP for text in texts):
        raise ValueError(f"a stop string has 1 to {LONGEST_STOP} characters")
    return tuple(texts)


def _from_base64(value: object) -> object:
    try:
        return b64decode(value, validate=True) if isinstance(value, str) else value
    except ValueError:
        raise ValueError("expected base64") from None


def _patterns(value: object) -> object:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list | tuple) or not all(isinstance(each, str) for each in listed):
        raise ValueError("expected a pattern or an array of patterns")
    check_patterns(listed)
    return tuple(listed)


class RequestFile(BaseModel):
    """A document with a request; base64 in JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str = Field(min_length=1, max_length=LONGEST_FILE_NAME)
    content: Annotated[bytes, BeforeValidator(_from_base64, json_schema_input_type=str)] = Field(repr=False)


def _few_files(value: object) -> object:
    if not isinstance(value, list | tuple) or len(value) > MOST_FILES:
        raise ValueError(f"expected an array of up to {MOST_FILES} files")
    return tuple(value)


Files = Annotated[
    tuple[RequestFile, ...], BeforeValidator(_few_files, json_schema_input_type=list[RequestFile])
]  # fmt: skip
Patterns = Annotated[tuple[str, ...], BeforeValidator(_patterns, json_schema_input_type=str | list[str])]


class Request(ProcessorOptions):
    """One question. Options with a description are on the command line.

    Methods with options have subclasses. Raises pydantic's `ValidationError`.
    """

    question: str  # searched in both libraries
    earlier: str = ""  # earlier questions of the conversation
    prompt: str  # every row's text around the document, e.g. "\nQuestion: ...\nAnswer:"
    documents_at: int = 0  # its characters before the document
    controls: tuple[Control, ...] = ()  # its control tokens, which no text can spell
    history: int = 0  # prompt bytes of earlier turns
    keeper: str | None = None  # who alone finds this conversation's states again: a hash of an API key

    sources: Sources = Field(default="both", description="Side whose documents to use")
    seed: int | None = Field(default=None, ge=0, lt=SEEDS, description="Number that makes the answer repeatable")
    temperature: Annotated[float, AfterValidator(known_temperature)] = Field(
        default=0.0, description="0 always takes the likeliest token"
    )
    top_p: float | None = Field(  # none: the sampler's
        default=None, gt=0.0, le=1.0, description="Draw from the likeliest tokens with this total probability"
    )
    max_tokens: int = Field(default=128, ge=1, le=MOST_TOKENS, description="Longest answer")
    sampler: Sampler = Field(default="race", description="How tokens are drawn and checked")
    placement: Placement = Field(default="device", description="Which side aggregates")
    privacy: Privacy = Field(default="strict", description="Data that may leave this device")
    stop: Annotated[tuple[str, ...], BeforeValidator(_stop_strings)] = Field(
        default=(), description=f"End the answer before this text (up to {MOST_STOPS})"
    )
    documents: int = Field(default=4, ge=0, le=MOST_DOCUMENTS, description="Documents retrieved on each side")
    files: Files = ()  # read in place of this device's library
    device_documents: Patterns = Field(
        default=(), description="Use only these documents of this device: a folder, a file or tag:NAME"
    )
    cloud_documents: Patterns = Field(
        default=(), description="Use only these documents of the cloud: a folder, a file or tag:NAME"
    )
    method: str = Field(default="speculative", description="How the two sides make one answer")
    aggregation: Aggregation = Field(default="output", description=AGGREGATION)
    codec: Codec | None = None  # none: the sampler's (race -> race, paper -> top-p)
    entries: int = Field(default=32, ge=1, le=MOST_ENTRIES)  # K of the race
    exact: bool = True  # request a certificate's missing values
    top_logprobs: int | None = Field(default=None, ge=0, le=MOST_LOGPROBS)  # none: no logprobs
    wait: bool = Field(default=False, description="Wait for the cloud instead of continuing alone")
    provisional: bool = Field(default=False, description="Show drafts before they are final")
    unmatched: Unmatched = Field(
        default="warn",
        description="If no document is close to the question: answer without documents, refuse, or answer from them",
    )
    end_repetition: bool = False  # end an answer that repeats itself
    trace: bool = False  # of both sides, in the report


R = TypeVar("R", bound=Request)


def own_options(request: Request) -> str:
    """The method's own options as sent: JSON, or empty."""
    own = type(request).model_fields.keys() - Request.model_fields.keys()
    return request.model_dump_json(include=own) if own else ""


def read_own_options(kind: type[R], opening: Open) -> R:
    """A request with an opened session's own options and texts.

    Raises `ValueError`, one sentence, for unknown or out-of-range options.
    """
    own = kind.model_fields.keys() - Request.model_fields.keys()
    texts = {"question": opening.question, "prompt": opening.prompt}
    try:
        options = from_json(opening.options) if opening.options else {}
        if not isinstance(options, dict) or not options.keys() <= own:
            raise ValueError
        return kind.model_validate(texts | options)
    except ValueError:  # also pydantic's
        raise ValueError(f"The options of method {opening.method!r} are not readable or out of range.") from None


# --- errors

NO_PLACE = "There is no memory for this answer while other answers run."


class RequestError(ValueError):
    """An unservable request, in one sentence for the user.

    `field` names its part ("prompt", "max_tokens", ...).
    """

    def __init__(self, text: str, field: str) -> None:
        super().__init__(text)
        self.field = field


class TooLong(RequestError):
    """The question or conversation exceeds the context or a message."""

    def __init__(self, text: str) -> None:
        super().__init__(text, "prompt")


class AnswerFailed(RuntimeError):
    """A begun answer can't be completed, in one sentence for the user."""


class InternalFailure(AnswerFailed):
    """A fault of this program or its platform; see the daemon's log."""


class NoPlace(AnswerFailed):
    """No memory for an answer; retry after `wait` seconds."""

    def __init__(self, wait: float, text: str = NO_PLACE) -> None:
        super().__init__(text)
        self.wait = wait


# --- failures
# The cloud's messages that end or refuse a session.

STOPPING = "stopping"  # codes of an `Error`
STARTING = "starting"
NO_DOCUMENT_FITS = "no-document-fits"
QUESTION_TOO_LONG = "too-long"
_LONGEST_TEXT = 2048  # bytes of `Error.text`
_CODES = {"long_document": "document", "cloud_documents": NO_DOCUMENT_FITS}  # by unservable field


def failure_message(session: int, failure: Exception) -> Busy | Error:
    """End a session by the text of `failure`, for users (`as_failure`) or peers."""
    if isinstance(failure, ProtocolError):
        return Error(session, failure.code, failure.text)
    if isinstance(failure, NoPlace):
        return Busy(session, int(1e6 * failure.wait))
    if not isinstance(failure, RequestError):
        return Error(session, "failed", _cut(str(failure)))
    code = QUESTION_TOO_LONG if isinstance(failure, TooLong) else _CODES.get(failure.field, "unservable")
    return Error(session, code, _cut(str(failure)))


def stopping_message() -> Error:
    """The message that this cloud ends with its sessions; another may replace it."""
    return Error(0, STOPPING, "The cloud is stopping.")


def starting_message(doing: str) -> Error:
    """The message that this cloud starts; it ends the connection when ready."""
    return Error(0, STARTING, doing)


def no_handshake(request: Open | Fetch) -> Error:
    return Error(request.session, "no-handshake", f"Send Hello before {type(request).__name__}.")


def unknown_session(session: int) -> Error:
    """The message for an unknown session; the device may open it again."""
    return Error(session, "unknown-session", "This cloud does not know the session: it may have ended. Open it again.")


def _cut(text: str) -> str:
    """A sentence may quote long names."""
    return text.encode(errors="replace")[:_LONGEST_TEXT].decode(errors="ignore")
