"""Samplers as a session uses them: the race, which aggregates two views by certificate, and the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

from common.methods.aggregate.drafts import Decided, LackingLocal, LackingRemote
from common.sampling.certificate import WHOLE, Certified, certify, eta_fixed, lower_bound_winner
from common.sampling.grid import Logprobs, logprobs
from common.sampling.joint import JointToken
from common.sampling.paper import PaperDraft, PaperSampler, expected_acceptance
from common.sampling.race import Found, LocalRace, Race, RaceSampler
from common.sampling.view import RaceView
from proto.errors import malformed
from proto.messages import MOST_NAMED, Open, Side
from proto.payloads.race import RawEntries, decode_race, decode_raw, decode_top_p, encode_race, encode_raw, encode_top_p

RIVALS: Final = 8  # of a race's tokens, those that may turn out to be the target; hardly ever another one does
ENTRY_BYTES: Final = 200  # of a view for each token listed: most of it for those to be found by id
FEW: Final = 16  # entries of a list that is looked up further before anything is asked, as that takes no round trip


class RaceAggregation:
    """The race on one side. `exact`: ask for the values that a certificate lacks; otherwise take the token with the
    highest lower bound.

    `hide_ids`: ask for longer lists only, not for values of tokens by id, since these ids show which tokens this side's
    own documents favour. Lists of doubled length end in a certificate as well.

    `likeliest`: targets come with the log-probabilities of so many tokens, for the device, which shows them. The value
    of a target is asked for by name then, whoever lacks it: its name becomes known anyway.
    """

    def __init__(
        self, sampler: RaceSampler, vocabulary: int, exact: bool, hide_ids: bool = False, likeliest: int = 0
    ) -> None:
        self._sampler = sampler
        self._vocabulary = vocabulary
        self._exact = exact
        self._hide_ids = hide_ids
        self._likeliest = likeliest

    def race(self, position: int) -> Race:
        """The race whose winner is this side's draft."""
        return self._sampler.race(position)

    def drafted(self, position: int, probabilities: torch.Tensor, found: Found | None) -> LocalRace:
        """This side's drafted view; see `RaceSampler.drafted`."""
        if found is None:
            return self._sampler.draft(position, probabilities)
        return self._sampler.drafted(position, probabilities, found)

    def pack(self, view: RaceView) -> bytes:
        return encode_race(view.entries)

    def read(self, side: Side, position: int, payload: bytes) -> RaceView:
        return self._sampler.receive(position, decode_race(payload, self._vocabulary, self._vocabulary))

    def footprint(self, view: RaceView) -> int:
        return ENTRY_BYTES * len(view.entries.ids)

    def aggregate(
        self, role: Side, position: int, device: RaceView, cloud: RaceView, evidence: tuple[float, float]
    ) -> Decided | LackingRemote | LackingLocal:
        """Certify a token from both lists, or name the values that the local list lacks, or else the remote one.

        Of two lists that are too short, the one that bounds the other tokens worse gets longer: however long the other
        one got, this one alone could leave some that may win.
        """
        eta = eta_fixed(*evidence)
        outcome = certify(device, cloud, eta)
        if isinstance(outcome, Certified):
            lacking = _unknown(outcome.token, device, cloud) if self._likeliest and self._exact else None
            return lacking or self._decided(outcome.token, device, cloud, eta)
        if not self._exact:
            return self._decided(lower_bound_winner(device, cloud, eta), device, cloud, eta)
        local, remote = (device, cloud) if role == "device" else (cloud, device)
        of_local, of_remote = outcome.device_ids, outcome.cloud_ids
        local_cap, remote_cap = eta * device.threshold, (WHOLE - eta) * cloud.threshold
        if role == "cloud":
            of_local, of_remote, local_cap, remote_cap = of_remote, of_local, remote_cap, local_cap
        if of_local:
            return LackingLocal(of_local, 0)
        few = len(local.entries.ids) < FEW
        if outcome.deeper and local_cap > 0 and (few or local_cap >= remote_cap):
            return LackingLocal((), 2 * len(local.entries.ids))
        if outcome.deeper or self._hide_ids:
            return LackingRemote((), 2 * len(remote.entries.ids))
        return LackingRemote(of_remote[:MOST_NAMED], 0)

    def _decided(self, token: int, device: RaceView, cloud: RaceView, eta_device: int) -> Decided:
        of_device = eta_device * device.speed_of.get(token, 0.0)
        of_cloud = (WHOLE - eta_device) * cloud.speed_of.get(token, 0.0)
        told = logprobs(device, cloud, eta_device, token, self._likeliest) if self._likeliest else None
        return Decided(token, cloud_share=of_cloud / (of_device + of_cloud), logprobs=told)

    def alone(self, view: RaceView | JointToken) -> Logprobs | None:
        if isinstance(view, JointToken):
            return view.logprobs
        return logprobs(view, None, WHOLE, view.token, self._likeliest) if self._likeliest else None

    def rivals(self, view: RaceView | JointToken) -> list[tuple[int, float]]:
        return [] if isinstance(view, JointToken) else view.fastest(RIVALS)

    def check_resolve(self, ids: Sequence[int], depth: int) -> None:
        if (not ids and not depth) or max(ids, default=0) >= self._vocabulary:
            raise malformed(f"values can be asked of at least one token, and of tokens below {self._vocabulary}")

    def supply(self, view: LocalRace, ids: Sequence[int], depth: int) -> bytes:
        """Values of the `depth` fastest tokens, for another certificate; with `depth` 0, those of the tokens `ids`."""
        return encode_race(view.extend(depth) if depth else view.values(ids))

    def complete(self, view: RaceView, position: int, ids: Sequence[int], depth: int, payload: bytes) -> RaceView:
        named = () if depth else sorted({*ids})
        entries = decode_race(payload, self._vocabulary, min(depth, self._vocabulary) or len(named))
        if named and entries.ids.tolist() != named:
            raise malformed("values must be of the tokens that were asked for")
        return self._sampler.extend(view, depth, entries)


def _unknown(token: int, own: RaceView, other: RaceView) -> LackingLocal | LackingRemote | None:
    """The value of `token` that a view lacks, if one does."""
    if own.threshold > 0 and token not in own.speed_of:
        return LackingLocal((token,), 0)
    return LackingRemote((token,), 0) if other.threshold > 0 and token not in other.speed_of else None


# --- paper
# Algorithm 1 as a session uses it: aggregates two drafts and speaks the top-p and raw payloads.


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


# --- choice
# The sampler that a request names.


def make_aggregation(role: Side, request: Open, vocabulary: int) -> RaceAggregation | PaperAggregation:
    """The sampler of `role` for one answer. Raises `ValueError`, one sentence, for options that don't go together."""
    if request.sampler == "race":
        if request.codec != "race":
            raise ValueError(f"the race sampler sends codec 'race', not {request.codec!r}")
        sampler = RaceSampler(request.seed, request.temperature, request.entries, vocabulary, request.likeliest)
        # If the device keeps its distributions to itself, its questions must not reveal them either.
        hide_ids = request.placement == role == "device"
        likeliest = request.likeliest if role == "device" else 0
        return RaceAggregation(sampler, vocabulary, request.exact, hide_ids, likeliest)
    if request.likeliest:
        raise ValueError("only the race sampler lists the most probable tokens")
    if request.placement == "mirrored":
        raise ValueError("placement 'mirrored' needs the race sampler: only there both sides find the same token")
    if request.codec == "race":
        raise ValueError("the paper's sampler sends codec 'top-p' or 'raw', not 'race'")
    paper = PaperSampler(request.seed, request.temperature, request.top_p, request.codec, vocabulary)
    return PaperAggregation(paper, role, request.codec, vocabulary)
