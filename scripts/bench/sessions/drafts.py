"""Drafts of a device that has documents and no model: few tokens, chosen by a hash of the prefix, race each other."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

import numpy as np
import torch

from common.engine.draw import Drafter
from common.methods.aggregate.drafts import DraftWork, LocalDraft
from common.sampling.noise import race_noise
from proto.codes import decode, nearest
from proto.messages import Open

PEAKED = (0.6, 0.2, 0.1, 0.05, 0.03, 0.02)  # probabilities of the tokens that a draft is about
_CODES = nearest(np.asarray(PEAKED, dtype=np.float32))
_APART = 347  # ids from one of them to the next; has no factor in common with a vocabulary that it does not divide
_FACTOR = 0x9E3779B97F4A7C15


class WholeShare:
    """A `Mixing` of one document."""

    def contributions(self, token: int) -> Iterable[float]:
        """All of the token's probability."""
        return (1.0, 0.0)


class ScriptedDrafts:
    """A side's mixtures as a function of (position, prefix), so that an answer is the same whenever it is asked for."""

    def __init__(self, request: Open, drafter: Drafter, vocabulary: int, weight: float) -> None:
        """`weight` is that of the device's documents beside the cloud's, at every position. The list of every race is
        complete: `request.entries` must be more than it has tokens.
        """
        if request.entries <= len(PEAKED):
            raise ValueError(f"a complete list needs more than {len(PEAKED)} entries, not {request.entries}")
        self._request = request
        self._drafter = drafter
        self._vocabulary = vocabulary
        self._advantage = math.log(weight / (1.0 - weight))

    def draft(self, work: DraftWork, other: float) -> LocalDraft:
        """The draft that `work` asks for, where the cloud's log h is `other`."""
        started = time.perf_counter()
        first = ((work.digest + work.position) * _FACTOR >> 17) % self._vocabulary
        ids = np.asarray([(first + rank * _APART) % self._vocabulary for rank in range(len(PEAKED))], dtype=np.int64)
        probabilities = torch.zeros(self._vocabulary)
        probabilities[torch.from_numpy(ids)] = torch.tensor(PEAKED)
        order = ids.argsort()
        ids = ids[order]
        speeds = decode(_CODES[order]) / race_noise(self._request.seed, work.position, ids, self._request.temperature)
        view = self._drafter.drafted(work.position, probabilities, (ids, speeds))
        microseconds = int(1e6 * (time.perf_counter() - started))
        return LocalDraft(work.position, work.digest, view, other + self._advantage, microseconds)
