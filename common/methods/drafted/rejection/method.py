"""DSD, DSSD and quantise-sample-verify as methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from common.answer.request import Request
from common.methods.drafted.method import DraftVerify
from common.methods.drafted.rejection.request import QsvRequest, SplitRequest, check_ahead, check_lattice
from proto.messages import Open

if TYPE_CHECKING:
    from common.methods.drafted.rejection.scheme import RejectionScheme


class Dsd(DraftVerify):
    """Distributed speculative decoding: the drafter's distributions go up, cut to the tokens that they keep."""

    name: ClassVar[str] = "dsd"
    request: ClassVar[type[Request]] = SplitRequest

    def scheme(self, opening: Open, request: SplitRequest | QsvRequest, vocabulary: int) -> RejectionScheme:
        from common.methods.drafted.rejection.scheme import rejection_scheme

        return rejection_scheme(opening, request, vocabulary)


class Dssd(Dsd):
    """Distributed split speculative decoding: a number per token goes up, a distribution down for a rejected one."""

    name: ClassVar[str] = "dssd"


class Qsv(Dsd):
    """Quantise, sample, verify: distributions go up, rounded to a lattice before a token is drawn from them."""

    name: ClassVar[str] = "qsv"
    request: ClassVar[type[Request]] = QsvRequest

    def check(self, request: Request) -> None:
        super().check(request)
        assert isinstance(request, QsvRequest)
        check_lattice(request)
        check_ahead(request)
