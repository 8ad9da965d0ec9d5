"""The method as the daemons and the command line see it: its name, its options, its halves."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from common.answer.request import Request, RequestError
from common.methods.interface import check_both_sources, check_sampler
from proto.messages import Fetch, Open

if TYPE_CHECKING:
    from common.methods.interface import CloudContext, CloudHalf, DeviceContext, DeviceHalf


class TurnsRequest(Request):
    """The options of every method, and one more."""

    turn: int = Field(default=2, ge=1, le=16, description="Tokens that a side decides before it is the other's turn")


class Turns:
    """Implements `Method`."""

    name: ClassVar[str] = "turns"
    request: ClassVar[type[Request]] = TurnsRequest

    def check(self, request: Request) -> None:
        check_sampler(request)
        check_both_sources(request)
        if request.sampler != "race":
            raise RequestError("Method 'turns' needs the race sampler.", "sampler")

    def opening(self, request: Request, opening: Open) -> Open:
        return opening

    def device(self, context: DeviceContext) -> DeviceHalf:
        from tests.common.methods.turns.device_half import TurnsDevice

        return TurnsDevice(context)

    def cloud(self, request: Open | Fetch, context: CloudContext) -> CloudHalf:
        from tests.common.methods.turns.cloud_half import TurnsCloud

        return TurnsCloud(request, context)
