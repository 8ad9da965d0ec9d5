"""RAPID as a method, and the long context alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from common.answer.request import AGGREGATION, Request, RequestError, Sources, own_options, read_own_options
from common.methods.aggregate.method import Speculative
from common.methods.drafted.method import DraftVerify, LatticeRequest, check_draft, check_drawing, check_lattice
from proto.messages import MOST_FETCHED, MOST_PROPOSED, Aggregation, Fetch, Open

if TYPE_CHECKING:
    from common.methods.interface import CloudContext, CloudHalf, DeviceContext, DeviceHalf
    from common.methods.rapid.rapid import DocumentReading, RapidScheme


# --- one document

LONGEST_NAME = 512  # characters of a document's title or path

DocumentName = Annotated[str, Field(max_length=LONGEST_NAME)]
DOCUMENT_NAME = "Title or path of the document that the question is about"


def _one_row(value: Aggregation) -> Aggregation:
    """One document is one row."""
    return "context" if value == "output" else value


OneRow = Annotated[Aggregation, AfterValidator(_one_row)]


class LongContextRequest(Request):
    """A question about one document, read whole by one side."""

    sources: Sources = Field(default="cloud", description="Side whose documents to use")
    aggregation: OneRow = Field(default="context", description=AGGREGATION)
    long_document: DocumentName = Field(default="", description=DOCUMENT_NAME)


def check_document(method: str, name: str, aggregation: Aggregation) -> None:
    """Refuse a missing document, or several rows. Raises `RequestError`."""
    if not name.strip():
        raise RequestError(
            f"Method {method!r} answers from one document: name it by its title or path in long_document.",
            "long_document",
        )
    if aggregation != "context":
        raise RequestError(f"Method {method!r} reads one row: aggregation must be 'context'.", "aggregation")


class LongContext(Speculative):
    """One side reads a document whole and decides every token."""

    name: ClassVar[str] = "long-context"
    request: ClassVar[type[Request]] = LongContextRequest

    def check(self, request: Request) -> None:
        assert isinstance(request, LongContextRequest)
        if request.sources == "both":
            raise RequestError(
                f"Method {request.method!r} reads a document of one side: sources must be 'cloud' or 'device'.",
                "sources",
            )
        check_document(request.method, request.long_document, request.aggregation)
        super().check(request)

    def device(self, context: DeviceContext) -> DeviceHalf:
        from common.methods.rapid.long_context import LongContextDevice

        assert isinstance(context.request, LongContextRequest)
        return LongContextDevice(context, self._paper, context.request.long_document)

    def cloud(self, request: Open | Fetch, context: CloudContext) -> CloudHalf:
        from common.methods.rapid.long_context import LongContextCloud

        if not isinstance(request, Open) or request.sources != "cloud":
            raise ValueError(f"Method {self.name!r} is opened by Open, with sources 'cloud'.")
        document = read_own_options(LongContextRequest, request).long_document
        return LongContextCloud(request, context, self._paper, document)


# --- rapid

Residual = Literal["augmented", "paper"]

MOST_ETA = 1000.0
MOST_RETRIEVED = 2**20  # tokens


def _texts(value: object) -> object:
    refused = ValueError(f"expected an array of up to {MOST_FETCHED} texts")
    if not isinstance(value, list | tuple) or len(value) > MOST_FETCHED:
        raise refused
    if not all(isinstance(text, str) and text.strip() for text in value):
        raise refused
    return tuple(value)


Texts = Annotated[tuple[str, ...], BeforeValidator(_texts, json_schema_input_type=list[str])]


class RapidRequest(LatticeRequest):
    """A question about one long document."""

    aggregation: OneRow = Field(default="context", description=AGGREGATION)
    draft_length: int = Field(default=10, ge=1, le=MOST_PROPOSED, description="Tokens per proposal, for policy fixed")
    long_document: DocumentName = Field(default="", description=DOCUMENT_NAME)
    eta: float = Field(
        default=10.0,
        ge=0.0,
        le=MOST_ETA,
        allow_inf_nan=False,
        description="How far the verifier is moved towards the drafter; 0: not at all",
    )
    residual: Residual = Field(
        default="augmented", description="Rule for replacing a rejected draft; paper: as published, which is not exact"
    )
    draft_codec: Literal["sparse", "lattice"] = Field(
        default="sparse", description="How the drafter's distributions travel"
    )
    retrieval_tokens: int | None = Field(  # none: 4096 or a 24th of the document, the larger
        default=None, ge=1, le=MOST_RETRIEVED, description="Tokens of the document's passages that the drafter reads"
    )
    retrieval_threshold: float = Field(
        default=0.3,
        ge=-1.0,
        le=1.0,
        allow_inf_nan=False,
        description="Least similarity of a passage that the drafter reads",
    )
    # Replace the document's passages. They are not sent, but numbers from them are.
    passages: Texts = Field(default=(), exclude=True, repr=False)
    verifier: Literal["cloud", "device"] = Field(
        default="cloud", description="Side that has the document and reads all of it"
    )

    @property
    def lawful(self) -> bool:
        """Whether every token follows p̂."""
        return self.residual == "augmented" or self.eta == 0


def options_for_verifier(request: RapidRequest) -> str:
    """The options to send, without passages if the request has its own."""
    return own_options(request.model_copy(update={"retrieval_tokens": 1}) if request.passages else request)


def check_rapid(request: RapidRequest) -> None:
    check_document(request.method, request.long_document, request.aggregation)
    if request.verifier == "cloud":
        check_draft(request)
        if request.passages and request.privacy != "balanced":
            raise RequestError(
                "Distributions computed from your passages would go to the cloud: set privacy 'balanced' or "
                "verifier 'device', or leave the passages out.",
                "passages",
            )
    elif request.sources != "device":
        raise RequestError(
            f"A verifier on this device reads this device's documents: sources must be 'device', not "
            f"{request.sources!r}.",
            "sources",
        )
    else:
        check_drawing(request)
    if request.resolution is not None and request.draft_codec != "lattice":
        raise RequestError("A resolution needs draft_codec 'lattice'.", "resolution")
    check_lattice(request)


class Rapid(DraftVerify):
    """The verifier reads a document whole, shifted towards a drafter that reads parts."""

    name: ClassVar[str] = "rapid"
    request: ClassVar[type[Request]] = RapidRequest

    def check(self, request: Request) -> None:
        assert isinstance(request, RapidRequest)
        check_rapid(request)

    def opening(self, request: Request, opening: Open) -> Open:
        assert isinstance(request, RapidRequest)
        options = options_for_verifier(request)
        return replace(super().opening(request, opening), aggregation="context", options=options)

    def scheme(self, opening: Open, request: RapidRequest, vocabulary: int) -> RapidScheme:
        from common.methods.rapid.rapid import rapid_scheme

        return rapid_scheme(opening, request, vocabulary)

    def reading(self, opening: Open, request: RapidRequest) -> DocumentReading:
        from common.methods.rapid.rapid import DocumentReading

        return DocumentReading(request)

    def device(self, context: DeviceContext) -> DeviceHalf:
        from common.methods.rapid.rapid import RapidDevice, ResidentRapid

        opening, request = context.opening, context.request
        assert isinstance(request, RapidRequest)
        vocabulary = context.side.decoder.vocabulary
        scheme, reading = self.scheme(opening, request, vocabulary), self.reading(opening, request)
        if request.verifier == "cloud":
            return RapidDevice(context, scheme, reading, self.relief)
        return ResidentRapid(context, scheme, self.scheme(opening, request, vocabulary), reading)
