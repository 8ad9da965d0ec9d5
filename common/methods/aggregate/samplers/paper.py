"""Algorithm 1 as a session uses it: aggregates two drafts and speaks the top-p and raw payloads."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from common.methods.aggregate.machine.values import Decided
from common.sampling.algorithm1 import expected_acceptance
from common.sampling.certificate import WHOLE, eta_fixed
from common.sampling.fastest import Found
from common.sampling.paper import PaperDraft, PaperSampler
from proto.errors import malformed
from proto.fields import Side
from proto.payloads.raw import RawEntries, decode_raw, encode_raw
from proto.payloads.top_p import decode_top_p, encode_top_p


class PaperAggregation:
    """The paper's sampler on the side `role`. Payloads carry whole drafts, so it always decides."""

    def __init__(self, sampler: PaperSampler, role: Side, codec: str, vocabulary: int) -> None:
        self._sampler = sampler
        self._role = role
        self._codec = codec
        self._vocabulary = vocabulary

    def race(self, position: int) -> None:
        """None: drafts are drawn one by one."""

    def drafted(self, position: int, probabilities: torch.Tensor, found: Found | None) -> PaperDraft:
        """This side's draft; see `PaperSampler.draft`."""
        return self._sampler.draft(self._role, position, probabilities)

    def pack(self, view: PaperDraft) -> bytes:
        entries = view.entries
        return encode_raw(entries) if isinstance(entries, RawEntries) else encode_top_p(entries)

    def read(self, side: Side, position: int, payload: bytes) -> PaperDraft:
        if self._codec == "raw":
            return self._sampler.receive(side, position, decode_raw(payload, self._vocabulary))
        return self._sampler.receive(side, position, decode_top_p(payload, self._vocabulary))

    def footprint(self, view: PaperDraft) -> int:
        entries, distribution = view.entries, view.distribution
        sent = (entries.probabilities,) if isinstance(entries, RawEntries) else (entries.ids, entries.weights)
        return sum(array.nbytes for array in (*sent, distribution.ids, distribution.probabilities))

    def aggregate(
        self,
        role: Side,
        position: int,
        device: PaperDraft,
        cloud: PaperDraft,
        evidence: tuple[float, float],
    ) -> Decided:
        """The target of Algorithm 1, with the acceptance that Eq. 5 expects of either side."""
        eta = eta_fixed(*evidence) / WHOLE
        outcome = self._sampler.aggregate(position, device, cloud, eta)
        of_device = eta * device.distribution.of(outcome.token)
        of_cloud = (1.0 - eta) * cloud.distribution.of(outcome.token)
        expected = expected_acceptance(device.distribution, cloud.distribution, eta)
        return Decided(outcome.token, of_cloud / (of_device + of_cloud), expected)

    def alone(self, view: object) -> None:
        """None: what is known of a draft was truncated and sharpened."""

    def rivals(self, view: PaperDraft) -> tuple[()]:
        """None: a target that was not drafted is drawn with another random number."""
        return ()

    def check_resolve(self, ids: Sequence[int], depth: int) -> None:
        raise malformed("the paper's sampler has nothing to resolve")

    def supply(self, view: PaperDraft, ids: Sequence[int], depth: int) -> bytes:
        """Refuse: the draft was sent whole."""
        raise malformed("the paper's sampler has nothing to resolve")

    def complete(self, view: PaperDraft, position: int, ids: Sequence[int], depth: int, payload: bytes) -> PaperDraft:
        raise malformed("the paper's sampler has nothing to resolve")
