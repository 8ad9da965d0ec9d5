"""Memory within the limits of made control groups, of both versions that kernels have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from cloud.gateway import fleet as gateway
from cloud.settings import CloudSettings
from common.engine.model import decoder as configured
from common.process.machine import Memory, memory
from device.cli.doctor import models as doctor
from device.settings import DeviceSettings

MB = 2**20
UNLIMITED = 9223372036854771712  # as the first version writes it


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: Memory(8000 * MB, 6000 * MB))


def made(root: Path, groups: str, files: Mapping[str, str]) -> Path:
    told = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    for name, text in ({"proc/self/cgroup": groups} | told).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_a_machine_without_control_groups(tmp_path: Path) -> None:
    assert memory(tmp_path) == Memory(8000 * MB, 6000 * MB)


@pytest.mark.parametrize(
    ("groups", "files", "total", "available"),
    [
        ("0::/\n", {"cgroup.procs": ""}, 8000, 6000),  # of the kernel's own
        ("0::/\n", {"memory.max": "max\n", "memory.current": "5\n"}, 8000, 6000),
        ("0::/\n", {"memory.max": f"{512 * MB}\n"}, 512, 512),  # of a container, which sees no group around it
        ("0::/\n", {"memory.max": f"{512 * MB}\n", "memory.current": f"{200 * MB}\n"}, 512, 312),
        ("0::/\n", {"memory.max": f"{9000 * MB}\n", "memory.current": f"{8900 * MB}\n"}, 8000, 100),
        ("0::/\n", {"memory.max": f"{512 * MB}\n", "memory.current": f"{600 * MB}\n"}, 512, 0),
        (
            "0::/\n",
            {
                "memory.max": f"{512 * MB}\n",
                "memory.current": f"{500 * MB}\n",
                "memory.stat": f"anon {100 * MB}\ninactive_file {350 * MB}\nactive_file 7\n",
            },
            512,
            362,
        ),
        (
            "0::/user.slice/a.slice/dragon.service\n",
            {
                "user.slice/a.slice/dragon.service/memory.max": "max\n",
                "user.slice/a.slice/memory.max": f"{700 * MB}\n",
                "user.slice/a.slice/memory.current": f"{100 * MB}\n",
                "user.slice/memory.max": f"{900 * MB}\n",
                "user.slice/memory.current": f"{600 * MB}\n",
            },
            700,
            300,
        ),
        (
            "5:cpu,cpuacct:/docker/1\n4:hugetlb,memory:/docker/1\n0::/docker/1\n",
            {
                "memory/memory.limit_in_bytes": f"{600 * MB}\n",  # the container's own: the path is the host's
                "memory/memory.usage_in_bytes": f"{500 * MB}\n",
                "memory/memory.stat": f"inactive_file 1\ntotal_inactive_file {50 * MB}\n",
            },
            600,
            150,
        ),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": f"{UNLIMITED}\n"}, 8000, 6000),
        ("none\n0::/\n", {"memory.max": f"{512 * MB}\n", "memory.stat": "inactive_file\n\n"}, 512, 512),
    ],
)
def test_the_least_of_all_limits_counts(
    tmp_path: Path, groups: str, files: dict[str, str], total: int, available: int
) -> None:
    assert memory(made(tmp_path, groups, files)) == Memory(total * MB, available * MB)


def test_keys_and_values_take_their_part_of_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a daemon, in a gateway's workers and in the diagnosis alike."""
    for module in (configured, gateway, doctor):
        monkeypatch.setattr(module, "memory", lambda: Memory(400 * MB, 300 * MB))
    assert configured.kv_limit(None) == 100 * MB
    assert configured.kv_limit(7 * MB) == 7 * MB
    assert gateway.settings_of_worker(CloudSettings(workers=2))["kv_bytes"] == 50 * MB
    monkeypatch.setattr(doctor, "PROGRAM", 250 * MB)
    told = doctor.check_memory(DeviceSettings(torch_device="cpu"), [], 1)
    assert (told.level, told.text) == ("warn", "315 MB free; the daemon takes about 262 MB, and answers up to 105 MB")
