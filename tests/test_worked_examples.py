"""docs/algorithm.md: what its worked examples say is what the code computes."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
import torch

from common.sampling.certificate import WHOLE, Decision, MissingValues, certify, eta_fixed
from common.sampling.compiled import exponential
from common.sampling.race import RaceSampler
from tests.test_documents import ALGORITHM


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", ALGORITHM, re.DOTALL)


class TestNoiseExample:
    def test_values_are_the_codes(self) -> None:
        (block,) = blocks("noise")
        pattern = r"seed=(\d+) position=(\d+) id=(\d+) bits=([0-9a-f]{8}) E=([\d.]+)"
        values = [re.fullmatch(pattern, line) for line in block.strip().splitlines()]
        assert len(values) > 4
        for value in values:
            assert value
            seed, position, token = (int(number) for number in value.groups()[:3])
            (noise,) = exponential(seed, position, [token])
            assert f"{noise.view(np.uint32):08x}" == value[4]
            assert np.float32(value[5]) == noise

    def test_the_recipe_alone_gives_them(self) -> None:
        """The definition as it is written, with the constants as they are written, in exact integers."""
        constants = re.findall(r"0x[0-9A-F]{16}", ALGORITHM[ALGORITHM.index("mix(w):") :])
        first, second, golden, factor = (int(text, 16) for text in constants[:4])
        assert int(constants[4], 16) == golden
        root = int(constants[5], 16)
        (ln2,) = re.findall(r"ln u = e · ([\d.]+) \+ a", ALGORITHM)
        assert float(ln2) == math.log(2)  # its last digits are seldom seen in a float32

        def mix(word: int) -> int:
            word %= 2**64
            word = (word ^ (word >> 30)) * first % 2**64
            word = (word ^ (word >> 27)) * second % 2**64
            return word ^ (word >> 31)

        def noise(seed: int, t: int, i: int) -> np.float32:
            word = mix(mix(mix(seed + golden) + t * factor) + i * golden)
            u = (2 * (word >> 12) + 1) * 2.0**-53
            bits = int(np.float64(u).view(np.int64))
            e = (bits - root) >> 52
            z = float(np.int64(bits - (e << 52)).view(np.float64))
            s = (z - 1) / (z + 1)
            q = s * s
            a = q * (2 / 11)
            for k in (4, 3, 2, 1):
                a = (a + 2 / (2 * k + 1)) * q
            a = (a + 2.0) * s
            return np.float32(e * -float(ln2) - a)

        ids = [*range(2000), 2**24 - 1]
        for seed, position in ((0, 0), (2**64 - 1, 2**20 - 1), (42, 7)):
            told = exponential(seed, position, ids)
            assert [noise(seed, position, token).tobytes() for token in ids] == [value.tobytes() for value in told]


@pytest.mark.parametrize("block", blocks("certificate"))
def test_certificate_example(block: str) -> None:
    def words(start: str) -> str:
        (line,) = [line for line in block.splitlines() if line.startswith(start)]
        return line.removeprefix(start).strip()

    evidence = re.findall(r"evidences (-[\d.]+) \(device\) and (-[\d.]+) \(cloud\)", ALGORITHM)
    ((log_h_device, log_h_cloud),) = ((float(one), float(other)) for one, other in evidence)
    eta = eta_fixed(log_h_device, log_h_cloud)
    assert words("eta_device") == f"{eta} / {WHOLE}"
    mixtures = [torch.tensor(json.loads(words(f"{side} p"))) for side in ("device", "cloud")]
    sampler = RaceSampler(int(words("seed")), 1.0, 3, len(mixtures[0]))
    device, cloud = views = [sampler.draft(0, mixture) for mixture in mixtures]
    for side, view in zip(("device", "cloud"), views, strict=True):
        speeds = ", ".join(f"{token}: {speed:.4f}" for token, speed in view.speed_of.items())
        assert words(f"{side} list") == f"{{{speeds}}} threshold {view.threshold:.4f} draft {view.token}"
    weights = (eta / WHOLE, 1 - eta / WHOLE)
    bounds = []
    for token in sorted(device.speed_of | cloud.speed_of):
        pairs = list(zip(weights, views, strict=True))
        low = sum(weight * view.speed_of.get(token, 0.0) for weight, view in pairs)
        high = sum(weight * view.speed_of.get(token, view.threshold) for weight, view in pairs)
        bounds.append(f"token {token} from {low:.4f} to {high:.4f}")
    assert [line for line in block.splitlines() if line.startswith("token ")] == bounds
    assert words("unlisted") == f"{weights[0] * device.threshold + weights[1] * cloud.threshold:.4f}"
    outcome = certify(device, cloud, eta)
    whole = RaceSampler(int(words("seed")), 1.0, 8, 8)
    target = certify(whole.draft(0, mixtures[0]), whole.draft(0, mixtures[1]), eta)
    if isinstance(outcome, MissingValues):
        lists = f"device {list(outcome.device_ids)} cloud {list(outcome.cloud_ids)} deeper {outcome.deeper}"
        assert words("contested") == lists.lower()
        own = sampler.complete(device, 0, outcome.device_ids, 0, sampler.supply(device, outcome.device_ids, 0))
        completed = sampler.complete(cloud, 0, outcome.cloud_ids, 0, sampler.supply(cloud, outcome.cloud_ids, 0))
        decided = sampler.aggregate("device", 0, own, completed, (log_h_device, log_h_cloud))
        assert isinstance(decided, Decision)
        assert target == int(words("resolved")) == decided.token
    else:
        assert outcome == target == int(words("certified"))
