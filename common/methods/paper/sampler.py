"""The paper's sampler: drafts, truncation, and aggregation by Algorithm 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from common.answer.values import View
from common.sampling.certificate import WHOLE, Decision, eta_fixed
from common.sampling.compiled import Draws, Purpose, SeededDraws
from common.sampling.mixture import sharpened
from common.sampling.truncation import Distribution, nucleus, renormalised
from proto.codes import RawEntries, TopPEntries, decode_raw, decode_top_p, encode_raw, encode_top_p
from proto.errors import malformed
from proto.messages import Open, Side

# --- truncation
# Drafts are drawn from exactly the transmitted distribution.


def truncate(probabilities: torch.Tensor, top_p: float) -> tuple[NDArray[np.uint32], NDArray[np.float16]]:
    """Keep a mixture's [vocab] most probable tokens with mass at least `top_p`.

    Returns increasing ids [n] and weights [n], rounded to float16 without zeros.
    """
    top, indices = nucleus(probabilities, top_p)
    ids = indices.cpu().numpy()
    weights = top.to(torch.float32).cpu().numpy().astype(np.float16)
    order = np.argsort(ids)
    order = order[weights[order] > 0]
    return ids[order].astype(np.uint32), weights[order]


# --- algorithm1
# Speculative aggregation of the paper (DRAGON §4.2, Algorithm 1), the baseline of the race.
#
# Algorithm 1 prints the wrong weight. By Appendix A.2 and Eq. 5, a draft x of side a is rejected with
#
#     probability  η^b (1 - p^b(x) / p^a(x))  where p^a(x) > p^b(x),  b the other side,
#
# and drawn again from norm(max(0, p^b - p^a)). Both results follow η^a p^a + η^b p^b; a fair coin picks one.
#
# `Draws` are keyed by purpose and side, so any aggregator gets the same outcome.

GAMMA: Final = 0.5  # γ^device = γ^cloud (§4.3)

_DRAFT: Final = {"device": Purpose.DRAFT_DEVICE, "cloud": Purpose.DRAFT_CLOUD}
_ACCEPT: Final = {"device": Purpose.ACCEPT_DEVICE, "cloud": Purpose.ACCEPT_CLOUD}
_RESIDUAL: Final = {"device": Purpose.RESIDUAL_DEVICE, "cloud": Purpose.RESIDUAL_CLOUD}


def draw_draft(side: Side, own: Distribution, draws: Draws) -> int:
    """The draft of `side`, from its sent distribution."""
    return int(own.ids[draws.pick(_DRAFT[side], own.probabilities)])


def aggregate(
    device_token: int,
    device: Distribution,
    cloud_token: int,
    cloud: Distribution,
    eta_device: float,
    draws: Draws,
) -> int:
    """The target, distributed as η^device p^device + η^cloud p^cloud (Eq. 4).

    Drafts must be drawn from their sides' distributions.
    """
    from_device = _sample("device", device_token, device, cloud, 1.0 - eta_device, draws)
    from_cloud = _sample("cloud", cloud_token, cloud, device, eta_device, draws)
    return from_device if draws.happens(Purpose.CHOICE, GAMMA) else from_cloud


def most_probable(device: Distribution, cloud: Distribution, eta_device: float) -> int:
    """The mixture's argmax, lowest id first: the target at temperature 0."""
    found: list[tuple[float, int]] = []
    for ids in (device.ids, cloud.ids):  # a union would need sorting
        mixture = eta_device * device.at(ids) + (1.0 - eta_device) * cloud.at(ids)
        place = int(mixture.argmax())
        found.append((-float(mixture[place]), int(ids[place])))
    return min(found)[1]


def expected_acceptance(device: Distribution, cloud: Distribution, eta_device: float) -> tuple[float, float]:
    """α of device and cloud: each draft's chance to be the target (Eq. 5).

        α^a = γ (1 - η^b δ) + γ Σ_x p^a(x) p(x),    δ = 1 - Σ_x min(p^a(x), p^b(x)),    p the mixture

    The other side's result is independent and follows the mixture, the p of the second sum (proof of Theorem 4.2).
    """
    cloud_at_device = cloud.at(device.ids)
    divergence = 1.0 - float(np.minimum(device.probabilities, cloud_at_device).sum())
    both = float((device.probabilities * cloud_at_device).sum())
    eta_cloud = 1.0 - eta_device
    device_again = eta_device * float((device.probabilities**2).sum()) + eta_cloud * both
    cloud_again = eta_cloud * float((cloud.probabilities**2).sum()) + eta_device * both
    return (
        GAMMA * (1.0 - eta_cloud * divergence) + (1.0 - GAMMA) * device_again,
        (1.0 - GAMMA) * (1.0 - eta_device * divergence) + GAMMA * cloud_again,
    )


def _sample(side: Side, token: int, own: Distribution, other: Distribution, eta_other: float, draws: Draws) -> int:
    """The paper's Sample: keep the draft, or draw from the residual."""
    own_probability, other_probability = own.of(token), other.of(token)
    if own_probability <= other_probability:
        return token
    if not draws.happens(_ACCEPT[side], eta_other * (1.0 - other_probability / own_probability)):
        return token
    residual = np.maximum(0.0, other.probabilities - own.at(other.ids))
    if not residual.any():  # a rounding difference
        return token
    return int(other.ids[draws.pick(_RESIDUAL[side], residual)])


# --- paper

PaperEntries = TopPEntries | RawEntries

_MOST_LISTED: Final = 4096
_WHOLE_DRAFTS: Final = "the paper's sampler has nothing to resolve"


@dataclass(frozen=True, slots=True, eq=False)
class PaperDraft:
    """A drafted token with its payload and distribution."""

    token: int
    entries: PaperEntries
    distribution: Distribution

    @property
    def listed(self) -> NDArray[np.integer]:
        """The most probable tokens, increasing."""
        ids = self.distribution.ids
        if len(ids) <= _MOST_LISTED:
            return ids
        return np.sort(ids[np.argpartition(self.distribution.probabilities, -_MOST_LISTED)[-_MOST_LISTED:]])


@dataclass(frozen=True, slots=True)
class PaperOutcome:
    """The target, and whether each draft equals it (Algorithm 1: x, S^l, S^r)."""

    token: int
    device_accepted: bool
    cloud_accepted: bool


class PaperSampler:
    """Draws and aggregates one answer's drafts on the side `role`.

    Other settings are equal on both sides. Payloads carry whole drafts, so an aggregation always decides.

    `seed` has 64 bits. `vocabulary` counts the tokenizer's tokens. Codec `raw` ignores `top_p`. Temperature 0 takes the
    most probable token.
    """

    def __init__(
        self,
        seed: int,
        temperature: float,
        top_p: float,
        codec: Literal["top-p", "raw"],
        vocabulary: int,
        role: Side = "device",
    ) -> None:
        if not 0.0 < top_p <= 1.0:
            raise ValueError(f"top_p must be above 0 and at most 1, not {top_p}")
        self._seed = seed
        self._temperature = temperature
        self._top_p = top_p
        self._codec = codec
        self._vocabulary = vocabulary
        self._role: Side = role

    def race(self, position: int) -> None:
        """None: drafts are drawn one by one."""

    def drafted(self, position: int, probabilities: torch.Tensor, found: object) -> PaperDraft:
        return self.draft(self._role, position, probabilities)

    def draft(self, side: Side, position: int, probabilities: torch.Tensor) -> PaperDraft:
        """Draw `side`'s draft from its mixture, float [vocab], at the session's temperature.

        Raises `ValueError` for another shape, or without a positive probability.
        """
        if probabilities.shape != (self._vocabulary,):
            raise ValueError(f"a mixture must be [{self._vocabulary}], not {tuple(probabilities.shape)}")
        probabilities = sharpened(probabilities, self._temperature)
        if self._codec == "raw":
            return self._raw_draft(side, position, probabilities.to(torch.float32).cpu().numpy())
        ids, weights = truncate(probabilities, self._top_p)
        distribution = renormalised(ids, weights)
        token = self._draw(side, position, distribution)
        choice = int(np.searchsorted(ids, token))
        return PaperDraft(token, TopPEntries(ids, weights, choice), distribution)

    def receive(self, side: Side, position: int, entries: PaperEntries) -> PaperDraft:
        """Check a received draft. Raises `ProtocolError` unless the seed draws its token."""
        if isinstance(entries, RawEntries) != (self._codec == "raw"):
            raise malformed(f"the session's codec is {self._codec}")
        if isinstance(entries, RawEntries):
            ids: NDArray[np.integer] = np.arange(len(entries.probabilities))
            distribution, told = renormalised(ids, entries.probabilities), entries.token
        else:
            distribution = renormalised(entries.ids, entries.weights)
            told = int(entries.ids[entries.choice])
        if told != self._draw(side, position, distribution):
            raise malformed("the drafted token is not the one that the session's seed draws")
        return PaperDraft(told, entries, distribution)

    # --- a session's

    def pack(self, view: PaperDraft) -> bytes:
        entries = view.entries
        return encode_raw(entries) if isinstance(entries, RawEntries) else encode_top_p(entries)

    def read(self, side: Side, position: int, payload: bytes) -> PaperDraft:
        read = decode_raw if self._codec == "raw" else decode_top_p
        return self.receive(side, position, read(payload, self._vocabulary))

    def footprint(self, view: PaperDraft) -> int:
        entries, distribution = view.entries, view.distribution
        sent = (entries.probabilities,) if isinstance(entries, RawEntries) else (entries.ids, entries.weights)
        return sum(array.nbytes for array in (*sent, distribution.ids, distribution.probabilities))

    def aggregate(
        self, role: Side, position: int, device: PaperDraft, cloud: PaperDraft, evidence: tuple[float, float]
    ) -> Decision:
        """Algorithm 1's target with both expected acceptances (Eq. 5)."""
        eta = eta_fixed(*evidence) / WHOLE
        outcome = self.target(position, device, cloud, eta)
        of_device = eta * device.distribution.of(outcome.token)
        of_cloud = (1.0 - eta) * cloud.distribution.of(outcome.token)
        expected = expected_acceptance(device.distribution, cloud.distribution, eta)
        return Decision(outcome.token, of_cloud / (of_device + of_cloud), expected)

    def alone(self, position: int, view: View) -> Decision:
        """The draft, without log-probabilities: drafts are truncated and sharpened."""
        return Decision(view.token, logprobs=None)

    def rivals(self, view: PaperDraft) -> tuple[()]:
        """Empty: another random number draws an undrafted target."""
        return ()

    def check_resolve(self, ids: Sequence[int], depth: int) -> None:
        raise malformed(_WHOLE_DRAFTS)

    def supply(self, view: PaperDraft, ids: Sequence[int], depth: int) -> bytes:
        raise malformed(_WHOLE_DRAFTS)

    def complete(self, view: PaperDraft, position: int, ids: Sequence[int], depth: int, payload: bytes) -> PaperDraft:
        raise malformed(_WHOLE_DRAFTS)

    # --- both sides' drafts

    def target(self, position: int, device: PaperDraft, cloud: PaperDraft, eta_device: float) -> PaperOutcome:
        """The target by Algorithm 1; at temperature 0 the sent mixture's argmax."""
        if self._temperature > 0:
            token = aggregate(
                device.token,
                device.distribution,
                cloud.token,
                cloud.distribution,
                eta_device,
                SeededDraws(self._seed, position),
            )
        else:
            token = most_probable(device.distribution, cloud.distribution, eta_device)
        return PaperOutcome(token, token == device.token, token == cloud.token)

    def _raw_draft(self, side: Side, position: int, probabilities: NDArray[np.float32]) -> PaperDraft:
        distribution = renormalised(np.arange(len(probabilities)), probabilities)
        token = self._draw(side, position, distribution)
        return PaperDraft(token, RawEntries(probabilities, token), distribution)

    def _draw(self, side: Side, position: int, distribution: Distribution) -> int:
        if self._temperature > 0:
            return draw_draft(side, distribution, SeededDraws(self._seed, position))
        return int(distribution.ids[distribution.probabilities.argmax()])


def make_paper_sampler(role: Side, request: Open, vocabulary: int) -> PaperSampler:
    """Make `role`'s sampler. Raises `ValueError`, one sentence, for incompatible options."""
    if request.likeliest:
        raise ValueError("only the race sampler lists the most probable tokens")
    if request.placement == "mirrored":
        raise ValueError("placement 'mirrored' needs the race sampler: only there both sides find the same token")
    if request.codec == "race":
        raise ValueError("the paper's sampler sends codec 'top-p' or 'raw', not 'race'")
    return PaperSampler(request.seed, request.temperature, request.top_p, request.codec, vocabulary, role)
