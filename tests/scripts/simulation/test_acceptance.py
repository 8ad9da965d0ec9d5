"""Acceptance sequences: modelled rates are met, nonsense is refused."""

from __future__ import annotations

from statistics import mean

import pytest

from scripts.simulation.acceptance import Rates


class TestRates:
    @pytest.mark.parametrize("rates", [Rates(0.48, 0.48, 0.03), Rates(0.85, 0.86, 0.73), Rates.independent(0.9, 0.2)])
    def test_each_and_both_are_met(self, rates: Rates) -> None:
        """20,000 positions of a fixed seed: within 4 standard deviations (0.0035 at most) of the rate."""
        drawn = rates.draw(20_000, 5)
        assert mean(p.device for p in drawn) == pytest.approx(rates.device, abs=0.015)
        assert mean(p.cloud for p in drawn) == pytest.approx(rates.cloud, abs=0.015)
        assert mean(p.device and p.cloud for p in drawn) == pytest.approx(rates.both, abs=0.015)

    def test_seeds_differ_and_repeat(self) -> None:
        rates = Rates(0.5, 0.5, 0.25)
        assert rates.draw(64, 1) == rates.draw(64, 1) != rates.draw(64, 2)

    @pytest.mark.parametrize("values", [(0.9, 0.9, 0.7), (0.5, 0.4, 0.45), (1.2, 0.5, 0.5), (0.5, -0.1, 0.0)])
    def test_what_can_not_be_is_refused(self, values: tuple[float, float, float]) -> None:
        with pytest.raises(ValueError, match="accept"):
            Rates(*values)
