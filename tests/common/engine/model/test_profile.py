from __future__ import annotations

from itertools import count

import pytest

from common.engine.model.errors import ContextError
from common.engine.model.profile import profile_decode
from tests.common.engine.model.tiny_models import Pair


class TestProfile:
    def test_every_context_is_measured_at_its_length(self, llama: Pair) -> None:
        ticks = map(float, count())
        before = llama.decoder.document_cache.counters
        profile = profile_decode(llama.decoder, 3, [5, 20, 200, 255], repeats=2, clock=lambda: next(ticks))
        assert profile.contexts.tolist() == [5, 5, 20, 20, 200, 200, 255, 255]
        assert profile.seconds.tolist() == [1.0] * 8
        assert llama.decoder.document_cache.counters == before

    def test_a_slow_machine_is_measured_for_so_long_and_no_longer(self, llama: Pair) -> None:
        """Every look at the clock takes a second."""
        now = count()
        profile = profile_decode(llama.decoder, 1, [5, 200, 255], clock=lambda: float(next(now)), seconds=30.0)
        assert set(profile.contexts.tolist()) < {5, *range(69, 255)}
        assert profile.contexts.tolist()[:5] == [5] * 5
        assert next(now) < 30 + 6

    def test_one_step_is_measured_in_any_case(self, llama: Pair) -> None:
        profile = profile_decode(llama.decoder, 1, [5, 200], seconds=0.0)
        assert profile.contexts.tolist() == [5]
        assert (profile.seconds > 0).all()

    def test_real_clock_gives_positive_seconds(self, llama: Pair) -> None:
        assert (profile_decode(llama.decoder, 1, [3, 9], repeats=1).seconds > 0).all()

    def test_memory_is_given_back(self, llama: Pair) -> None:
        used = llama.decoder.memory.used_bytes
        profile_decode(llama.decoder, 3, [5, 20], repeats=1)
        assert llama.decoder.memory.used_bytes == used

    @pytest.mark.parametrize("contexts", [[], [0, 5], [9, 9], [9, 5]])
    def test_lengths_must_grow(self, llama: Pair, contexts: list[int]) -> None:
        with pytest.raises(ValueError, match="increasing"):
            profile_decode(llama.decoder, 1, contexts)

    def test_counts_must_be_positive(self, llama: Pair) -> None:
        with pytest.raises(ValueError, match="at least 1"):
            profile_decode(llama.decoder, 0, [5])

    def test_beyond_the_context(self, llama: Pair) -> None:
        with pytest.raises(ContextError, match="256"):
            profile_decode(llama.decoder, 1, [5, 256])
