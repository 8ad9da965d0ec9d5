"""Draft-and-verify methods over the network as `Method`s: what they share, and what each of them brings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from common.answer.request import Request, read_own_options
from common.methods.drafted.request import DraftRequest, check_draft
from proto.messages import Fetch, Open

if TYPE_CHECKING:
    from common.engine.sampling import Drafter
    from common.methods.drafted.machine.values import Drafts, Judge, RoundsConfig
    from common.methods.drafted.reading import Reading
    from common.methods.interface import CloudContext, CloudHalf, DeviceContext, DeviceHalf
    from common.sampling.warping import Warp


class Scheme(Protocol):
    """The mathematics of a method: how both sides draw, what travels, and what is decided from it."""

    @property
    def config(self) -> RoundsConfig: ...

    @property
    def token_bytes(self) -> Mapping[int | None, float]:
        """Bytes of a proposed token, with what travels beside it, by resolution: those that a policy may choose."""
        ...

    @property
    def drafter(self) -> Drafter:
        """Draws the drafts."""
        ...

    @property
    def drafts(self) -> Drafts: ...

    @property
    def verifier(self) -> Drafter:
        """Makes the verifier's own views."""
        ...

    @property
    def judge(self) -> Judge: ...

    @property
    def cut(self) -> Warp | None:
        """The cut that the verifier makes in its distribution by itself; None: it keeps what the processors leave."""
        ...


class DraftVerify(ABC):
    """Implements `Method` but for `scheme`: the device's draft model proposes, the cloud's model decides."""

    name: ClassVar[str]
    request: ClassVar[type[Request]]  # a subclass of `DraftRequest`

    @abstractmethod
    def scheme(self, opening: Open, request: Any, vocabulary: int) -> Scheme:
        """The mathematics of one answer; `request` has the method's own options, and nothing else that is of use."""

    def reading(self, opening: Open, request: Any) -> Reading:
        """The readings of both sides for one answer."""
        from common.methods.drafted.reading import SharedPassages

        return SharedPassages(opening.documents)

    def check(self, request: Request) -> None:
        assert isinstance(request, DraftRequest)
        check_draft(request)

    def opening(self, request: Request, opening: Open) -> Open:
        return replace(opening, sources="cloud", placement="cloud")

    def device(self, context: DeviceContext) -> DeviceHalf:
        from common.methods.drafted.device_half import DraftingDevice

        opening, request = context.opening, context.request
        scheme = self.scheme(opening, request, context.side.decoder.vocabulary)
        return DraftingDevice(context, scheme, self.reading(opening, request))

    def cloud(self, request: Open | Fetch, context: CloudContext) -> CloudHalf:
        from common.daemon.handshake import proper_eos
        from common.methods.drafted.cloud_half import VerifyingCloud

        if not isinstance(request, Open) or request.sources != "cloud":
            raise ValueError(f"Method {self.name!r} is opened by Open, with sources 'cloud'.")
        vocabulary = context.side.decoder.vocabulary
        if not proper_eos(request.eos, vocabulary):
            raise ValueError("The end-of-sequence ids of an answer must be increasing and below the vocabulary.")
        own = read_own_options(self.request, request)
        return VerifyingCloud(request, context, self.scheme(request, own, vocabulary), self.reading(request, own))
