"""The paper's sampler end to end: the same outcome wherever it is aggregated, and the right law."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch
from scipy import stats

from common.methods.paper.sampler import PaperDraft, PaperOutcome, PaperSampler
from common.sampling.truncation import Distribution
from proto.codes import RawEntries, TopPEntries, decode_raw, decode_top_p, encode_raw, encode_top_p
from proto.errors import ProtocolError
from proto.messages import Side


def mixture(vocabulary: int, seed: int, spread: float = 2.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(spread * torch.randn(vocabulary, generator=generator), -1)


def through_the_wire(draft: PaperDraft, vocabulary: int) -> TopPEntries | RawEntries:
    if isinstance(draft.entries, RawEntries):
        return decode_raw(encode_raw(draft.entries), vocabulary)
    return decode_top_p(encode_top_p(draft.entries), vocabulary)


class TestBothSides:
    @pytest.mark.parametrize("codec", ["top-p", "raw"])
    @pytest.mark.parametrize("temperature", [0.0, 1.0])
    @pytest.mark.parametrize("vocabulary", [50, 151_936])
    def test_same_outcome_wherever_it_is_aggregated(
        self, codec: Literal["top-p", "raw"], temperature: float, vocabulary: int
    ) -> None:
        here, there = (PaperSampler(77, temperature, 0.8, codec, vocabulary) for _ in range(2))
        for t in range(30 if vocabulary < 1_000 else 3):
            device = here.draft("device", t, mixture(vocabulary, 2 * t))
            cloud = there.draft("cloud", t, mixture(vocabulary, 2 * t + 1))
            by_device = here.target(t, device, here.receive("cloud", t, through_the_wire(cloud, vocabulary)), 0.3)
            by_cloud = there.target(t, there.receive("device", t, through_the_wire(device, vocabulary)), cloud, 0.3)
            assert by_device == by_cloud
            assert by_device.device_accepted == (by_device.token == device.token)
            assert by_device.cloud_accepted == (by_device.token == cloud.token)

    def test_positions_may_be_drawn_in_any_order(self) -> None:
        sampler = PaperSampler(1, 1.0, 0.9, "top-p", 40)
        forward = [sampler.draft("cloud", t, mixture(40, 0)).token for t in range(30)]
        assert [sampler.draft("cloud", t, mixture(40, 0)).token for t in reversed(range(30))] == forward[::-1]
        assert forward != [sampler.draft("device", t, mixture(40, 0)).token for t in range(30)]

    def test_forged_draft_is_refused(self) -> None:
        sampler = PaperSampler(1, 1.0, 0.9, "top-p", 40)
        entries = sampler.draft("cloud", 0, mixture(40, 0)).entries
        assert isinstance(entries, TopPEntries)
        forged = TopPEntries(entries.ids, entries.weights, (entries.choice + 1) % len(entries.ids))
        with pytest.raises(ProtocolError, match="seed"):
            sampler.receive("cloud", 0, forged)

    def test_other_codec_is_refused(self) -> None:
        raw = PaperSampler(1, 1.0, 0.9, "raw", 40).draft("cloud", 0, mixture(40, 0))
        with pytest.raises(ProtocolError, match="top-p"):
            PaperSampler(1, 1.0, 0.9, "top-p", 40).receive("cloud", 0, raw.entries)


class TestLaw:
    def run(self, sampler: PaperSampler, positions: int) -> tuple[list[PaperOutcome], Distribution, Distribution]:
        one, other = torch.tensor([0.4, 0.3, 0.2, 0.06, 0.04]), torch.tensor([0.1, 0.1, 0.2, 0.3, 0.3])
        outcomes = []
        for t in range(positions):
            device, cloud = sampler.draft("device", t, one), sampler.draft("cloud", t, other)
            outcomes.append(sampler.target(t, device, cloud, 0.7))
        return outcomes, device.distribution, cloud.distribution

    def test_is_the_mixture_of_what_was_sent(self) -> None:
        """G-test over 6,000 positions; the mixture of what was not truncated is told apart."""
        outcomes, device, cloud = self.run(PaperSampler(5, 1.0, 0.85, "top-p", 5), 6_000)
        counts = np.bincount([outcome.token for outcome in outcomes], minlength=5)
        sent = 0.7 * device.at(np.arange(5)) + 0.3 * cloud.at(np.arange(5))
        whole = 0.7 * np.array([0.4, 0.3, 0.2, 0.06, 0.04]) + 0.3 * np.array([0.1, 0.1, 0.2, 0.3, 0.3])
        assert stats.power_divergence(counts, 6_000 * sent, lambda_="log-likelihood").pvalue > 1e-3
        assert stats.power_divergence(counts, 6_000 * whole, lambda_="log-likelihood").pvalue < 1e-9

    def test_temperature_zero(self) -> None:
        outcomes, _, _ = self.run(PaperSampler(5, 0.0, 1.0, "top-p", 5), 2)
        assert {outcome.token for outcome in outcomes} == {0}


class TestSettings:
    @pytest.mark.parametrize("top_p", [0.0, -0.1, 1.1, float("nan")])
    def test_top_p_is_a_share(self, top_p: float) -> None:
        with pytest.raises(ValueError, match="top_p"):
            PaperSampler(1, 1.0, top_p, "top-p", 10)

    @pytest.mark.parametrize("side", ["device", "cloud"])
    def test_refuses_another_vocabulary(self, side: Side) -> None:
        with pytest.raises(ValueError, match=r"must be \[10\]"):
            PaperSampler(1, 1.0, 0.8, "raw", 10).draft(side, 0, mixture(11, 0))
