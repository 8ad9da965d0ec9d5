"""The rule of a request for the length of its proposals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from common.methods.draft_verify.request import DraftRequest
from common.methods.interface import Cloud
from common.rounds.values import Lengths, Plan
from common.session.values import View


@dataclass(frozen=True, slots=True)
class FixedLength:
    """Proposals of one length."""

    length: int

    def plan(self) -> Plan:
        return Plan(self.length)

    def goes_on(self, views: Sequence[View]) -> bool:
        return True


def lengths_of(request: DraftRequest, cloud: Cloud) -> Lengths:
    """The rule that `request` names."""
    return FixedLength(request.draft_length)
