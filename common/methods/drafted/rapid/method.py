"""RAPID as a method."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from common.answer.request import Request
from common.methods.drafted.method import DraftVerify
from common.methods.drafted.rapid.request import RapidRequest, check_rapid, options_for_verifier
from proto.messages import Open

if TYPE_CHECKING:
    from common.methods.drafted.rapid.reading import DocumentReading
    from common.methods.drafted.rapid.scheme import RapidScheme
    from common.methods.interface import DeviceContext, DeviceHalf


class Rapid(DraftVerify):
    """A long document is read whole by the verifier and in part by the drafter, towards which the verifier is moved."""

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
        from common.methods.drafted.rapid.scheme import rapid_scheme

        return rapid_scheme(opening, request, vocabulary)

    def reading(self, opening: Open, request: RapidRequest) -> DocumentReading:
        from common.methods.drafted.rapid.reading import DocumentReading

        return DocumentReading(request)

    def device(self, context: DeviceContext) -> DeviceHalf:
        from common.methods.drafted.rapid.device_half import RapidDevice
        from common.methods.drafted.rapid.resident import ResidentRapid

        opening, request = context.opening, context.request
        assert isinstance(request, RapidRequest)
        vocabulary = context.side.decoder.vocabulary
        scheme, reading = self.scheme(opening, request, vocabulary), self.reading(opening, request)
        if request.verifier == "cloud":
            return RapidDevice(context, scheme, reading)
        return ResidentRapid(context, scheme, self.scheme(opening, request, vocabulary), reading)
