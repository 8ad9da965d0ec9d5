"""Invitations of a cloud: who may reply to them, how often, and for how long."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from common.transport import pairing as invitations
from common.transport.address import TransportError
from common.transport.keys import KeyFolder
from common.transport.pairing import Reply, invite, trust_cloud, trust_device

ADDRESS = "tcp://cloud.example:8601"


@pytest.fixture
def cloud(tmp_path: Path) -> KeyFolder:
    return KeyFolder(tmp_path / "cloud")


@pytest.fixture
def device(tmp_path: Path) -> KeyFolder:
    return KeyFolder(tmp_path / "device")


def test_both_trust_each_other_then(cloud: KeyFolder, device: KeyFolder) -> None:
    reply = trust_cloud(device, invite(cloud, ADDRESS, "laptop"), "cloud")
    peer = trust_device(cloud, reply)
    assert (peer.name, peer.key) == ("laptop", device.own().public)
    assert cloud.allows(device.own().public)
    assert device.device_keys().cloud == cloud.own().public


def test_what_is_made_is_its_owners_alone(cloud: KeyFolder) -> None:
    mask = os.umask(0)
    try:
        invite(cloud, ADDRESS)
    finally:
        os.umask(mask)
    for path in (cloud.path, *cloud.path.rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_an_invitation_counts_once(cloud: KeyFolder, device: KeyFolder, tmp_path: Path) -> None:
    invitation = invite(cloud, ADDRESS, "laptop")
    reply = trust_cloud(device, invitation, "cloud")
    peer = trust_device(cloud, reply)
    assert trust_device(cloud, reply) == peer  # the same device, again: nothing changes
    with pytest.raises(TransportError, match="the invitation was used"):
        trust_device(cloud, trust_cloud(KeyFolder(tmp_path / "other"), invitation, "cloud"), "phone")
    assert [each.name for each in cloud.trusted()] == ["laptop"]


def test_a_refused_reply_leaves_the_invitation(cloud: KeyFolder, device: KeyFolder) -> None:
    reply = trust_cloud(device, invite(cloud, ADDRESS), "cloud")
    with pytest.raises(TransportError, match="add --name"):
        trust_device(cloud, reply)
    with pytest.raises(TransportError, match="is not a valid name"):
        trust_device(cloud, reply, "a b")
    assert trust_device(cloud, reply, "laptop").name == "laptop"


def test_a_reply_with_another_key_is_refused(cloud: KeyFolder, device: KeyFolder, tmp_path: Path) -> None:
    reply = trust_cloud(device, invite(cloud, ADDRESS, "laptop"), "cloud")
    intruder = KeyFolder(tmp_path / "intruder").new()
    with pytest.raises(TransportError, match="This reply fits no open invitation"):
        trust_device(cloud, Reply(intruder.public, reply.proof))
    assert not cloud.trusted()


def test_another_clouds_invitation_does_not_count(cloud: KeyFolder, device: KeyFolder, tmp_path: Path) -> None:
    invite(cloud, ADDRESS, "laptop")
    other = invite(KeyFolder(tmp_path / "other"), ADDRESS)
    with pytest.raises(TransportError, match="another cloud's"):
        trust_device(cloud, trust_cloud(device, other, "cloud"))


def test_after_a_day_it_is_gone(cloud: KeyFolder, device: KeyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    reply = trust_cloud(device, invite(cloud, ADDRESS, "laptop"), "cloud")
    monkeypatch.setattr(invitations, "LIFE", -1.0)
    with pytest.raises(TransportError, match="older than a day"):
        trust_device(cloud, reply)
    assert not list((cloud.path / "invitations").iterdir())


def test_a_damaged_one_is_removed(cloud: KeyFolder, device: KeyFolder) -> None:
    reply = trust_cloud(device, invite(cloud, ADDRESS, "laptop"), "cloud")
    (cloud.path / "invitations" / "x.json").write_text("{")
    assert trust_device(cloud, reply).name == "laptop"
    assert not list((cloud.path / "invitations").iterdir())


def test_another_key_is_replaced_only_if_told(cloud: KeyFolder, device: KeyFolder, tmp_path: Path) -> None:
    new = KeyFolder(tmp_path / "new")
    trust_cloud(device, invite(cloud, ADDRESS), "cloud")
    invitation = invite(new, ADDRESS)
    with pytest.raises(TransportError, match=r"Another key is trusted as cloud .*--replace"):
        trust_cloud(device, invitation, "cloud")
    assert device.device_keys().cloud == cloud.own().public
    trust_cloud(device, invitation, "cloud", replace=True)
    assert [each.key for each in device.trusted()] == [new.own().public]
