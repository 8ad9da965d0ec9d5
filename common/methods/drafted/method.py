"""Draft-and-verify methods over the network: common parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol

from pydantic import AfterValidator, Field

from common.answer.request import Request, RequestError, Sources, known_temperature, read_own_options
from common.methods.interface import check_logprobs, check_processors
from proto.messages import MOST_PROPOSED, MOST_RESOLUTION, Fetch, Open, Sampler

if TYPE_CHECKING:
    from common.answer.driver import Driver, ModelSeat
    from common.answer.values import Work
    from common.daemon.model_runtime import ModelRuntime, PromptRows
    from common.engine.draw import Drafter
    from common.methods.drafted.cloud import PassageReading
    from common.methods.drafted.drafting import Drafting, Drafts, Judge, RoundsConfig
    from common.methods.interface import CloudContext, CloudHalf, DeviceContext, DeviceHalf
    from common.sampling.rejection import Warp


# --- request

DraftPolicyName = Literal["fixed", "goodput", "confidence", "heuristic", "ddqn"]


class DraftRequest(Request):
    """A drafting and a verifying model read the cloud's documents."""

    lattices: ClassVar[bool] = False  # a policy may choose the resolution

    sources: Sources = Field(default="cloud", description="Side whose documents to use")
    sampler: Sampler = Field(default="rejection", description="How tokens are drawn and checked")
    draft_length: int = Field(default=6, ge=1, le=MOST_PROPOSED, description="Tokens per proposal, for policy fixed")
    draft_policy: DraftPolicyName = Field(default="fixed", description="How the length of proposals is chosen")
    draft_temperature: Annotated[float, AfterValidator(known_temperature)] | None = Field(
        default=None, description="Temperature of the draft model, if it is a separate model"
    )


def draft_temperature(opening: Open, request: DraftRequest) -> float:
    """The drafter's temperature, by default the answer's."""
    return opening.temperature if request.draft_temperature is None else request.draft_temperature


def check_draft(request: DraftRequest) -> None:
    if request.sources != "cloud":
        raise RequestError(
            f"Method {request.method!r} reads the cloud's documents on both sides and none of this device's: sources "
            f"can't be {request.sources!r}.",
            "sources",
        )
    check_drawing(request)


def check_drawing(request: DraftRequest) -> None:
    """Refuse other samplers and unsupported options."""
    wanted = type(request).model_fields["sampler"].default
    if request.sampler != wanted:
        raise RequestError(f"Method {request.method!r} draws by {wanted!r}, not by {request.sampler!r}.", "sampler")
    if request.draft_policy == "ddqn" and not request.lattices:
        raise RequestError(
            f"Policy 'ddqn' chooses the lattice, and method {request.method!r} has none to choose: use method "
            "'qsv', or another policy.",
            "draft_policy",
        )
    check_logprobs(request)
    check_processors(request)


# --- distributions

DEFAULT_RESOLUTION = 64
MOST_FIXED = 128  # finer lattices rank too slowly


class RejectionRequest(DraftRequest):
    """Options of speculative sampling; `top_k` applies after the temperature."""

    top_k: int = Field(
        default=10, ge=0, lt=2**18, description="Draw from this many of the likeliest tokens; 0: from all"
    )


class LatticeRequest(RejectionRequest):
    """Options of methods with lattice distributions."""

    resolution: int | None = Field(  # none: 64, or the policy's choice
        default=None, ge=1, le=MOST_RESOLUTION, description="Number of units that a drafted distribution is rounded to"
    )
    index_code: Literal["short", "fixed"] = Field(default="short", description="How these units are numbered")


def check_lattice(request: LatticeRequest) -> None:
    """Refuse a fixed index of a fine lattice, or a lattice with policy 'ddqn'."""
    if request.index_code == "fixed" and (request.resolution or 0) > MOST_FIXED:
        raise RequestError(
            f"A resolution of {request.resolution} is too fine for index code 'fixed': it is {MOST_FIXED} at most.",
            "resolution",
        )
    if request.draft_policy == "ddqn" and (request.index_code == "fixed" or request.resolution is not None):
        raise RequestError("Policy 'ddqn' chooses the resolution, with index code 'short'.", "draft_policy")


# --- method


class Scheme(Protocol):
    """A method's mathematics: draws on both sides, payloads, decisions."""

    @property
    def config(self) -> RoundsConfig: ...

    @property
    def token_bytes(self) -> Mapping[int | None, float]:
        """Bytes of a proposed token with payload, by choosable resolution."""
        ...

    @property
    def drafter(self) -> Drafter:
        """Draws the drafts."""
        ...

    @property
    def drafts(self) -> Drafts: ...

    @property
    def verifier(self) -> Drafter:
        """Makes the verifier's views."""
        ...

    @property
    def judge(self) -> Judge: ...

    @property
    def cut(self) -> Warp | None:
        """The verifier's own cut; None: only the processors'."""
        ...


class Relief(Protocol):
    """A device model that replaces an absent verifier."""

    @property
    def possible(self) -> bool: ...

    def begin(self, found: PromptRows) -> None:
        """Start to decide on rows of `found` if the cloud is away. On the retrieval thread."""
        ...

    def end(self) -> None:
        """Stop: the answer is over or the cloud is back."""
        ...


class MakeRelief(Protocol):
    """Makes one answer's relief."""

    def __call__(
        self,
        context: DeviceContext,
        drafter: ModelRuntime,
        machine: Drafting,
        driver: Driver,
        part: ModelSeat[Work],
        cut: Warp | None,
    ) -> Relief: ...


class DraftVerify(ABC):
    """Implements `Method` except `scheme`: the device proposes, the cloud decides."""

    name: ClassVar[str]
    request: ClassVar[type[Request]]  # a subclass of `DraftRequest`

    def __init__(self, relief: Callable[[], MakeRelief] | None = None) -> None:
        """`relief` imports an absent cloud's replacement. None: the draft model."""
        self._relief = relief

    @property
    def relief(self) -> MakeRelief | None:
        return None if self._relief is None else self._relief()

    @abstractmethod
    def scheme(self, opening: Open, request: Any, vocabulary: int) -> Scheme:
        """One answer's mathematics; `request` has only the method's own options."""

    def reading(self, opening: Open, request: Any) -> PassageReading:
        from common.methods.drafted.cloud import SharedPassages

        return SharedPassages(opening.documents)

    def check(self, request: Request) -> None:
        assert isinstance(request, DraftRequest)
        check_draft(request)

    def opening(self, request: Request, opening: Open) -> Open:
        return replace(opening, sources="cloud", placement="cloud")

    def device(self, context: DeviceContext) -> DeviceHalf:
        from common.methods.drafted.device import DraftingDevice

        opening, request = context.opening, context.request
        scheme = self.scheme(opening, request, context.side.decoder.vocabulary)
        return DraftingDevice(context, scheme, self.reading(opening, request), self.relief)

    def cloud(self, request: Open | Fetch, context: CloudContext) -> CloudHalf:
        from common.daemon.handshake import proper_eos
        from common.methods.drafted.cloud import VerifyingCloud

        if not isinstance(request, Open) or request.sources != "cloud":
            raise ValueError(f"Method {self.name!r} is opened by Open, with sources 'cloud'.")
        vocabulary = context.side.decoder.vocabulary
        if not proper_eos(request.eos, vocabulary):
            raise ValueError("The end-of-sequence ids of an answer must be increasing and below the vocabulary.")
        own = read_own_options(self.request, request)
        return VerifyingCloud(request, context, self.scheme(request, own, vocabulary), self.reading(request, own))
