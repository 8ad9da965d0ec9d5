"""Keys that a daemon uses for its link: exchanged ones, this machine's own, or none."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from cloud.settings import CloudSettings
from common.daemon.start import allow_descriptors, cloud_keys, device_keys
from common.transport.address import TransportError
from common.transport.keys import KeyFolder, local_pair
from device.settings import DeviceSettings

LOOPBACK = ("tcp://127.0.0.1:8601", "tcp://localhost:8601", "tcp://[::1]:8601")
BEYOND = "tcp://10.1.2.3:8601"


def settings(path: Path, curve: str = "auto") -> tuple[DeviceSettings, CloudSettings]:
    shared = {"local_keys": path / "local-keys", "curve": curve, "insecure": True}
    device = DeviceSettings(data=path / "device", **shared)  # type: ignore[arg-type]
    return device, CloudSettings(data=path / "cloud", **shared)  # type: ignore[arg-type]


@pytest.mark.parametrize("address", LOOPBACK)
def test_daemons_of_one_user_share_keys_on_loopback(tmp_path: Path, address: str) -> None:
    device, cloud = settings(tmp_path)
    theirs, ours = cloud_keys(cloud, address), device_keys(device, address)
    assert theirs is not None and ours is not None
    assert ours.cloud == theirs.own.public and theirs.allows(ours.own.public)
    assert not theirs.allows(KeyFolder(tmp_path / "other").new().public)
    assert ours.local == tmp_path / "local-keys"


def test_keys_that_were_exchanged_come_first(tmp_path: Path) -> None:
    device, cloud = settings(tmp_path)
    local = local_pair(tmp_path / "local-keys").public
    by_device, by_cloud = KeyFolder(device.keys), KeyFolder(cloud.keys)
    exchanged = (by_device.new().public, by_cloud.new().public)
    assert cloud_keys(cloud, LOOPBACK[0]).own.public == local  # type: ignore[union-attr]  # not exchanged yet
    by_cloud.trust("laptop", exchanged[0])
    by_device.trust("cloud", exchanged[1])
    theirs, ours = cloud_keys(cloud, LOOPBACK[0]), device_keys(device, LOOPBACK[0])
    assert theirs is not None and ours is not None
    assert (ours.own.public, ours.cloud) == exchanged and ours.local is None
    assert theirs.own.public == exchanged[1]
    assert theirs.allows(exchanged[0]) and not theirs.allows(local)


def test_the_log_says_when_no_device_is_trusted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    device, cloud = settings(tmp_path)
    folder = KeyFolder(cloud.keys, "cloud")
    assert cloud_keys(cloud, LOOPBACK[0]) is not None and not caplog.messages, "nobody made keys: that is the default"
    folder.new()
    folder.trust("laptop", KeyFolder(device.keys).new().public)
    assert cloud_keys(cloud, LOOPBACK[0]) is not None and not caplog.messages
    folder.revoke("laptop")
    shared = cloud_keys(cloud, LOOPBACK[0])
    assert shared is not None and shared.allows(local_pair(cloud.local_keys).public)
    (told,) = caplog.messages
    assert f"only this user's devices on this machine can connect, with the keys in {cloud.local_keys}" in told
    assert "`dragon pair --role cloud` adds one" in told
    caplog.clear()
    beyond = cloud_keys(cloud, BEYOND)
    assert beyond is not None and not beyond.allows(KeyFolder(device.keys).own().public)
    assert caplog.messages[0] == "no device is trusted, so no device can connect; `dragon pair --role cloud` adds one"


def test_beyond_this_machine_only_exchanged_keys_count(tmp_path: Path) -> None:
    device, cloud = settings(tmp_path)
    with pytest.raises(TransportError, match="dragon keys new"):
        cloud_keys(cloud, BEYOND)
    with pytest.raises(TransportError, match="dragon keys trust cloud"):
        device_keys(device, BEYOND)
    assert not (tmp_path / "local-keys").exists()


def test_off_is_off(tmp_path: Path) -> None:
    device, cloud = settings(tmp_path, curve="off")
    for address in (*LOOPBACK, BEYOND):
        assert cloud_keys(cloud, address) is None and device_keys(device, address) is None
    assert not (tmp_path / "local-keys").exists()


def test_both_roles_have_the_folder_in_common_by_default() -> None:
    assert DeviceSettings().local_keys == CloudSettings().local_keys


def test_the_limit_of_descriptors_is_raised_but_never_lowered() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        allow_descriptors(128)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 256
        allow_descriptors(400)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 400
        allow_descriptors(2**40)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
