"""A question with its options, and the errors that can end it.

The limits of options are stated here, for HTTP bodies and the command line as well.
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
Privacy = Literal["strict", "balanced", "offline"]
PRIVACY_LEVELS: tuple[Privacy, ...] = ("offline", "strict", "balanced")  # from the most private one

MOST_STOPS = 4  # stop strings of a request
LONGEST_STOP = 1024  # characters
MOST_FILES = 16  # that come with a request
LONGEST_FILE_NAME = 255  # characters
AGGREGATION = "A row per document, or one row with all that a side has: read in one go, or as blocks that are kept"
MOST_LOGPROBS = 20  # alternatives of a token whose log-probabilities are told


def known_temperature(value: float | None) -> float | None:
    """The temperature, or 0 for one below what samplers tell from that. Refuses others that they don't take."""
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
    """A document that comes with a request; base64 in JSON."""

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
    """One question. Options that have a description are options of the command line, too.

    A method with options of its own has a subclass. Raises pydantic's `ValidationError`.
    """

    question: str  # what both libraries are searched for
    earlier: str = ""  # questions of the conversation that it may follow up on
    prompt: str  # the query part of every row, e.g. "\nQuestion: ...\nAnswer:"
    controls: tuple[Control, ...] = ()  # control tokens in it, which no text can spell out
    history: int = 0  # bytes of the prompt that come from earlier turns of the conversation

    sources: Sources = Field(default="both", description="Whose documents to use")
    seed: int | None = Field(default=None, ge=0, lt=SEEDS, description="Makes the answer reproducible")
    temperature: Annotated[float, AfterValidator(known_temperature)] = Field(
        default=0.0, description="0 takes the likeliest token"
    )
    top_p: float | None = Field(  # none: the sampler's own
        default=None, gt=0.0, le=1.0, description="Keep the likeliest tokens that hold so much"
    )
    max_tokens: int = Field(default=128, ge=1, le=MOST_TOKENS, description="Longest answer")
    sampler: Sampler = Field(default="race", description="How tokens are drawn and checked")
    placement: Placement = Field(default="device", description="Which side aggregates")
    privacy: Privacy = Field(default="strict", description="What may leave this device")
    stop: Annotated[tuple[str, ...], BeforeValidator(_stop_strings)] = Field(
        default=(), description=f"End the answer before this text (up to {MOST_STOPS})"
    )
    documents: int = Field(default=4, ge=0, le=MOST_DOCUMENTS, description="Documents retrieved on each side")
    files: Files = ()  # all that this device answers from, in place of its library
    device_documents: Patterns = Field(
        default=(), description="Of this device's, only documents in this folder, of this file or tag:NAME"
    )
    cloud_documents: Patterns = Field(
        default=(), description="Of the cloud's, only documents in this folder, of this file or tag:NAME"
    )
    method: str = Field(default="speculative", description="How the two sides come to one answer")
    aggregation: Aggregation = Field(default="output", description=AGGREGATION)
    codec: Codec | None = None  # none: the sampler's own (race -> race, paper -> top-p)
    entries: int = Field(default=32, ge=1, le=MOST_ENTRIES)  # K of the race
    exact: bool = True  # ask for what a certificate lacks
    top_logprobs: int | None = Field(default=None, ge=0, le=MOST_LOGPROBS)  # alternatives told; none: no logprobs
    wait: bool = Field(default=False, description="Wait for the cloud as long as it takes, rather than go on alone")
    provisional: bool = Field(default=False, description="Show drafts, which may be taken back")
    unmatched: Unmatched = Field(
        default="warn",
        description="Where no document is close to the question: answer without any, refuse, or answer from them",
    )
    end_repetition: bool = False  # whether an answer ends that says the same again and again
    trace: bool = False  # whether the report says what took when, on both sides


R = TypeVar("R", bound=Request)


def own_options(request: Request) -> str:
    """The options that `request` has beyond those of every method, as they travel: JSON, empty without any."""
    own = type(request).model_fields.keys() - Request.model_fields.keys()
    return request.model_dump_json(include=own) if own else ""


def read_own_options(kind: type[R], opening: Open) -> R:
    """A request of `kind` with the own options of an opened session, and nothing else of it but its texts.

    Raises `ValueError`, one sentence, for options that are not its own or out of their limits.
    """
    own = kind.model_fields.keys() - Request.model_fields.keys()
    texts = {"question": opening.question, "prompt": opening.prompt}
    try:
        options = from_json(opening.options) if opening.options else {}
        if not isinstance(options, dict) or not options.keys() <= own:
            raise ValueError
        return kind.model_validate(texts | options)
    except ValueError:  # pydantic's own, too
        raise ValueError(
            f"The options of method {opening.method!r} can't be read, or are out of their limits."
        ) from None


# --- errors
# Failures that are told to users.

NO_PLACE = "There is no memory for the answer while others are under way."


class RequestError(ValueError):
    """The request can't be served as asked; the text is one sentence for the user.

    `field` names the offending part of the request ("prompt", "max_tokens", ...).
    """

    def __init__(self, text: str, field: str) -> None:
        super().__init__(text)
        self.field = field


class TooLong(RequestError):
    """The question, or the conversation, does not fit into the model's context or into a message."""

    def __init__(self, text: str) -> None:
        super().__init__(text, "prompt")


class AnswerFailed(RuntimeError):
    """An answer that was begun can't be completed; the text is one sentence for the user."""


class InternalFailure(AnswerFailed):
    """An answer failed by a fault of this program or of what it runs on; the daemon's log says where."""


class NoPlace(AnswerFailed):
    """An answer turns out to need more memory than others leave it; there may be room `wait` seconds later."""

    def __init__(self, wait: float, text: str = NO_PLACE) -> None:
        super().__init__(text)
        self.wait = wait


# --- failures
# Messages of the cloud that end a session, or say that there is none.

STOPPING = "stopping"  # codes of an `Error`
STARTING = "starting"
NO_DOCUMENT_FITS = "no-document-fits"
QUESTION_TOO_LONG = "too-long"
_LONGEST_TEXT = 2048  # bytes of UTF-8 of `Error.text`
_CODES = {"long_document": "document", "cloud_documents": NO_DOCUMENT_FITS}  # by the field that can't be served


def failure_message(session: int, failure: Exception) -> Busy | Error:
    """The message that ends a running session; the text of `failure` was made for users (`as_failure`) or peers."""
    if isinstance(failure, ProtocolError):
        return Error(session, failure.code, failure.text)
    if isinstance(failure, NoPlace):
        return Busy(session, int(1e6 * failure.wait))
    if not isinstance(failure, RequestError):
        return Error(session, "failed", _cut(str(failure)))
    code = QUESTION_TOO_LONG if isinstance(failure, TooLong) else _CODES.get(failure.field, "unservable")
    return Error(session, code, _cut(str(failure)))


def stopping_message() -> Error:
    """The message that this cloud ends, and all sessions with it; another one may come in its place."""
    return Error(0, STOPPING, "The cloud is stopping.")


def starting_message(doing: str) -> Error:
    """The message that this cloud can't answer yet, and what it is at; when it can, it ends the connection."""
    return Error(0, STARTING, doing)


def no_handshake(request: Open | Fetch) -> Error:
    """The message that whoever asks has not said hello."""
    return Error(request.session, "no-handshake", f"Send Hello before {type(request).__name__}.")


def unknown_session(session: int) -> Error:
    """The message that this cloud does not know a session; a device that still wants the answer opens it again."""
    return Error(session, "unknown-session", "This cloud does not know the session, or any more; open it again.")


def _cut(text: str) -> str:
    """As much of a sentence as a message may have: it may quote names of any length."""
    return text.encode(errors="replace")[:_LONGEST_TEXT].decode(errors="ignore")
