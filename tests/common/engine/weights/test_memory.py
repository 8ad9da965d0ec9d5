"""A streamed model keeps to its budget, and reads what its plan says: as the system counts both, in processes of their
own, which are forked from one that has imported all that they need.

What interpreter and libraries take is what a process takes that loads the small model of which the large one was
inflated, less the small one's weights.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from common.engine.model.files import weight_files
from common.engine.streaming import BLOCK_BYTES, WeightFiles, runs
from tests.common.engine.inflated import inflate
from tests.common.engine.kv.storing import other_process
from tests.common.engine.model.tiny_models import DEMO
from tests.common.engine.weights import measured

LAYERS, INNER = 24, 2048
BUDGET = 48 * 2**20
# Activations, a thread's stack and the last pages of the allocator: 7 MB were seen, and 3 MB between two equal runs.
BESIDE = 16 * 2**20

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return inflate(DEMO / "target", tmp_path_factory.mktemp("inflated"), LAYERS, INNER)


def measure(folder: Path, budget: int = 0, how: str = "ahead") -> dict[str, Any]:
    with other_process(measured.measure, str(folder), budget, how == "ahead") as (_, receiver):
        assert receiver.poll(110)
        told: dict[str, Any] = receiver.recv()
    return told


@pytest.fixture(scope="module")
def small() -> dict[str, Any]:
    return measure(DEMO / "target")


def weights_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def test_memory_stays_within_the_budget(folder: Path, small: dict[str, Any]) -> None:
    large = measure(folder, BUDGET)
    assert weights_of(folder) > 3 * BUDGET
    interpreter = small["VmHWM"] - weights_of(DEMO / "target")
    assert large["VmHWM"] - interpreter <= BUDGET + BESIDE
    assert large["RssAnon"] - small["RssAnon"] <= BUDGET + BESIDE
    assert large["RssFile"] <= small["RssFile"] + BESIDE  # nothing is mapped
    assert large["logits"] == small["logits"]
    assert large["threads"] == small["threads"]
    # The measure notices a model that is read whole, of which there is one copy at any time.
    assert 2 * BUDGET < measure(folder)["VmHWM"] - interpreter < 1.3 * weights_of(folder) + BESIDE


def test_reading_is_what_the_plan_says(folder: Path) -> None:
    told = measure(folder, BUDGET, "when needed")
    assert 0 < told["resident"] < LAYERS
    expected = measured.STEPS * sum(span(folder, layer) for layer in range(told["resident"], LAYERS))
    assert told["bytes"] == expected
    assert 0 <= told["rchar"] - told["bytes"] < 1000  # the system's own account is read, too
    if told["direct"]:
        assert abs(told["read_bytes"] - told["bytes"]) < 2**20


def span(folder: Path, layer: int) -> int:
    """Bytes of the whole blocks that hold a layer."""
    files = WeightFiles(weight_files(folder))
    sizes = [path.stat().st_size for path in sorted(folder.glob("*.safetensors"))]
    wanted: Any = [(place, None) for name, place in files.places.items() if name.startswith(f"model.layers.{layer}.")]
    files.close()
    total = 0
    for run in runs(wanted):
        first, last = run[0][0].first, run[-1][0].last
        end = min(-(-last // BLOCK_BYTES) * BLOCK_BYTES, sizes[run[0][0].file])
        total += end - first // BLOCK_BYTES * BLOCK_BYTES
    return total
