"""Keys that nobody exchanged: this user's daemons find each other, and nobody else gets in."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import zmq

from common.transport.address import TransportError
from common.transport.cloud_link import CloudLink
from common.transport.device_link import DeviceLink
from common.transport.keys import KeyFolder, KeyPair, local_cloud_keys, local_device_keys, local_pair
from common.transport.sending import Limits
from proto.framing import encode
from proto.messages import Cancel
from tests.common.transport.support import Echo, Recorder, draft

LOCAL = "tcp://127.0.0.1:0"
QUICK = Limits(backoff_last=0.05, connect_timeout=1.0)


def test_both_ends_make_and_trust_the_same_keys(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "local-keys"
    echo, device = Echo(), Recorder()
    with (
        CloudLink(LOCAL, local_cloud_keys(folder), echo) as cloud,
        DeviceLink(cloud.address, local_device_keys(folder), device) as link,
    ):
        echo.link = cloud
        device.wait(lambda: device.connected)
        link.send(draft(1))
        device.wait(lambda: device.messages)
        assert echo.connected[0].key == local_pair(folder).public
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [(each.name, each.stat().st_mode & 0o777) for each in folder.iterdir()] == [("own.json", 0o600)]


@pytest.mark.parametrize("mask", [0, 0o077])
def test_nobody_else_can_enter_whatever_the_mask(tmp_path: Path, mask: int) -> None:
    old = os.umask(mask)
    try:
        local_pair(tmp_path / "keys")
    finally:
        os.umask(old)
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o700


def make_at_once(folder: Path, go: Connection, told: Connection) -> None:
    told.send("ready")
    go.recv()
    told.send(local_pair(folder).public)


def test_daemons_that_start_at_once_get_one_pair(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("fork")
    for attempt in range(5):
        pipes = []
        for _ in range(8):
            (go, went), (told, said) = spawn.Pipe(), spawn.Pipe()
            process = spawn.Process(target=make_at_once, args=(tmp_path / str(attempt), went, said))
            process.start()
            pipes.append((go, went, told, said, process))
        for _, _, told, _, _ in pipes:
            assert told.poll(30) and told.recv() == "ready"
        for go, *_ in pipes:
            go.send("go")
        keys = set()
        for go, went, told, said, process in pipes:
            assert told.poll(30)
            keys.add(told.recv())
            process.join()
            process.close()
            for each in (go, went, told, said):
                each.close()
        assert keys == {local_pair(tmp_path / str(attempt)).public}
        assert len(list((tmp_path / str(attempt)).iterdir())) == 1


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(TransportError, match="chmod 700"):
        local_pair(tmp_path)
    tmp_path.chmod(0o700)
    local_pair(tmp_path)
    (tmp_path / "own.json").chmod(0o644)
    with pytest.raises(TransportError, match="chmod 600"):
        local_pair(tmp_path)


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "keys"
    local_pair(folder)
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(TransportError, match=r"another user.*local_keys"):
        local_pair(folder)


def test_what_can_not_be_kept_or_read_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TransportError, match="set local_keys"):
        local_pair(tmp_path / "file" / "keys")
    with pytest.raises(TransportError, match="set local_keys"):
        local_pair(tmp_path / "file")
    folder = tmp_path / "keys"
    local_pair(folder)
    (folder / "own.json").write_text("{")
    with pytest.raises(TransportError, match="delete it"):
        local_pair(folder)


def test_a_cloud_of_another_user_or_without_keys_is_told_apart_by_a_sentence(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for keys in (local_cloud_keys(theirs), None):
        cloud_side, device = Recorder(), Recorder()
        with (
            CloudLink(LOCAL, keys, cloud_side, QUICK) as cloud,
            DeviceLink(cloud.address, local_device_keys(ours), device, QUICK) as link,
        ):
            device.wait_polling(lambda link=link: link.counters().refused >= 2)  # type: ignore[misc]
            device.wait_polling(lambda link=link: "the same user" in link.status().detail)  # type: ignore[misc]
            assert str(ours) in link.status().detail
            assert not device.order and not cloud_side.order


def test_another_user_of_the_machine_gets_nothing_through(tmp_path: Path) -> None:
    """Intruders know the address and the public key, but not the folder's content."""
    keys = local_cloud_keys(tmp_path / "keys")
    public, secret = (part.decode() for part in zmq.curve_keypair())
    cloud_side = Recorder()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with context, CloudLink(LOCAL, keys, cloud_side) as cloud:
        for own in (KeyPair(public, secret), None):
            before = cloud.counters().refused
            with context.socket(zmq.DEALER) as dealer:
                dealer.linger = 0
                dealer.reconnect_ivl = 10
                if own is not None:
                    dealer.curve_serverkey = keys.own.public.encode()
                    dealer.curve_publickey, dealer.curve_secretkey = own.public.encode(), own.secret.encode()
                dealer.connect(cloud.address)
                with contextlib.suppress(zmq.Again):  # refused by now, it has nowhere to send
                    dealer.send(encode(Cancel(1)), zmq.DONTWAIT)
                cloud_side.wait_polling(lambda before=before: cloud.counters().refused > before)  # type: ignore[misc]
        assert not cloud_side.order


def test_keys_made_by_hand_count_when_they_are_complete(tmp_path: Path) -> None:
    folder = KeyFolder(tmp_path)
    assert not folder.complete()
    folder.new()
    assert not folder.complete()
    folder.trust("laptop", zmq.curve_keypair()[0].decode())
    assert folder.complete() and not folder.complete("cloud")
