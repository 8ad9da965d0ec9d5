"""RAPID as a method."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from common.methods.draft_verify.method import DraftVerify
from common.methods.rapid.request import RapidRequest, check_rapid
from common.methods.request import Request
from proto.messages import Open

if TYPE_CHECKING:
    from common.methods.interface import DeviceContext, DeviceHalf
    from common.methods.rapid.reading import DocumentReading
    from common.methods.rapid.scheme import RapidScheme


class Rapid(DraftVerify):
    """A long document is read whole by the verifier and in part by the drafter, towards which the verifier is moved."""

    name: ClassVar[str] = "rapid"
    request: ClassVar[type[Request]] = RapidRequest

    def check(self, request: Request) -> None:
        assert isinstance(request, RapidRequest)
        check_rapid(request)

    def opening(self, request: Request, opening: Open) -> Open:
        return replace(super().opening(request, opening), aggregation="context")

    def scheme(self, opening: Open, request: RapidRequest, vocabulary: int) -> RapidScheme:
        from common.methods.rapid.scheme import rapid_scheme

        return rapid_scheme(opening, request, vocabulary)

    def reading(self, opening: Open, request: RapidRequest) -> DocumentReading:
        from common.methods.rapid.reading import DocumentReading

        return DocumentReading(request)

    def device(self, context: DeviceContext) -> DeviceHalf:
        from common.methods.rapid.device_half import RapidDevice
        from common.methods.rapid.resident import ResidentRapid

        opening, request = context.opening, context.request
        assert isinstance(request, RapidRequest)
        vocabulary = context.side.decoder.vocabulary
        scheme, reading = self.scheme(opening, request, vocabulary), self.reading(opening, request)
        if request.verifier == "cloud":
            return RapidDevice(context, scheme, reading)
        return ResidentRapid(context, scheme, self.scheme(opening, request, vocabulary), reading)
