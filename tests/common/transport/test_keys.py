"""Key files: who can read them, and what counts as trusted."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import zmq

from common.transport.address import TransportError
from common.transport.keys import KeyFolder, fingerprint, nobody
from proto.messages import Side


def public() -> str:
    return zmq.curve_keypair()[0].decode()


def test_the_own_pair_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    folder = KeyFolder(tmp_path / "keys")
    old_mask = os.umask(0)
    try:
        made = folder.new()
    finally:
        os.umask(old_mask)
    assert folder.own() == made
    assert zmq.curve_public(made.secret.encode()).decode() == made.public
    [file] = folder.path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert made.secret not in repr(made)


def test_a_pair_that_others_can_read_is_refused(tmp_path: Path) -> None:
    folder = KeyFolder(tmp_path)
    folder.new()
    (tmp_path / "own.json").chmod(0o640)
    with pytest.raises(TransportError, match="chmod 600"):
        folder.own()


def test_an_own_pair_is_not_overwritten_by_accident(tmp_path: Path) -> None:
    folder = KeyFolder(tmp_path)
    with pytest.raises(TransportError, match="dragon keys new"):
        folder.own()
    first = folder.new()
    with pytest.raises(TransportError, match="--replace"):
        folder.new()
    assert folder.own() == first
    assert folder.new(replace=True) != first


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}", '{"public": 1, "secret": 2}', '{"public": "a", "secret": "b"}', "mixed"],
)
def test_a_damaged_own_pair_is_one_sentence(tmp_path: Path, content: str) -> None:
    folder = KeyFolder(tmp_path)
    pair = folder.new()
    if content == "mixed":
        content = json.dumps({"public": public(), "secret": pair.secret})
    (tmp_path / "own.json").write_text(content)
    with pytest.raises(TransportError, match="--replace"):
        folder.own()


def test_trust_show_and_revoke(tmp_path: Path) -> None:
    folder = KeyFolder(tmp_path)
    laptop, phone = public(), public()
    assert not folder.allows(laptop)
    added = folder.trust("laptop", laptop)
    folder.trust("phone", phone)
    folder.trust("phone", phone)  # again: no change
    assert [peer.name for peer in folder.trusted()] == ["laptop", "phone"]
    assert added.fingerprint == fingerprint(laptop)
    assert len(added.fingerprint.split("-")) == 8
    assert folder.allows(laptop) and folder.allows(phone)
    assert folder.revoke("laptop") == (added,)
    assert folder.revoke(fingerprint(phone))[0].name == "phone"
    assert not folder.allows(laptop) and not folder.allows(phone)
    with pytest.raises(TransportError, match="dragon keys show"):
        folder.revoke("laptop")


def test_a_name_stands_for_one_key(tmp_path: Path) -> None:
    folder = KeyFolder(tmp_path)
    first = public()
    folder.trust("cloud", first)
    with pytest.raises(TransportError, match="--replace"):
        folder.trust("cloud", public())
    folder.new()
    assert folder.device_keys().cloud == first
    with pytest.raises(TransportError, match="keys trust other"):
        folder.device_keys("other")


@pytest.mark.parametrize("role", ["device", "cloud"])
def test_sentences_name_the_role(tmp_path: Path, role: Side) -> None:
    folder = KeyFolder(tmp_path, role)
    with pytest.raises(TransportError, match=f"`dragon keys new --role {role}`"):
        folder.own()
    with pytest.raises(TransportError, match=f"`dragon keys show --role {role}`"):
        folder.revoke("nobody")
    (tmp_path / "own.json").write_text("")
    with pytest.raises(TransportError, match=f"`dragon keys new --replace --role {role}`"):
        folder.own()


def test_who_is_renamed_or_forgotten_is_known_before(tmp_path: Path) -> None:
    folder = KeyFolder(tmp_path)
    laptop, phone = public(), public()
    first, second = folder.trust("laptop", laptop), folder.trust("phone", phone)
    assert folder.displaced("laptop", laptop) == folder.displaced("new", public()) == ()
    assert folder.displaced("laptop", phone) == (first, second)
    with pytest.raises(TransportError, match="pass --replace to rename it tablet"):
        folder.trust("tablet", laptop)
    folder.trust("laptop", phone, replace=True)
    assert [(peer.name, peer.key) for peer in folder.trusted()] == [("laptop", phone)]


@pytest.mark.parametrize("name", ["", "../own", "a/b", ".hidden", "x" * 65, "a b", "a\n"])
def test_odd_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(TransportError, match="is not a valid name"):
        KeyFolder(tmp_path).trust(name, public())


@pytest.mark.parametrize("key", ["", "short", "é" * 40, "#" * 40, "~" * 40, "a" * 39, "a" * 45])
def test_what_is_not_a_key_is_refused(tmp_path: Path, key: str) -> None:
    folder = KeyFolder(tmp_path)
    with pytest.raises(TransportError, match="40 characters"):
        folder.trust("peer", key)
    assert not folder.allows(key)
    assert folder.trusted() == ()


def test_doubtful_files_of_the_trust_folder_mean_no(tmp_path: Path) -> None:
    folder = KeyFolder(tmp_path)
    key, other = public(), public()
    folder.trust("laptop", key)
    [file] = (tmp_path / "trusted").iterdir()
    good = json.loads(file.read_text())
    for content in (
        "",
        "null",
        json.dumps({**good, "key": other}),
        json.dumps({**good, "key": other, "fingerprint": fingerprint(other)}),
        json.dumps({**good, "fingerprint": fingerprint(other)}),
        json.dumps({**good, "name": "../x"}),
        json.dumps({"key": key}),
    ):
        file.write_text(content)
        assert not folder.allows(key)
        assert not folder.allows(other)
        assert folder.trusted() == ()
    file.write_text(json.dumps(good))
    assert folder.allows(key)
    file.rename(file.with_name("laptop.json"))  # a handshake would not find it there, so it is not shown either
    assert not folder.allows(key) and folder.trusted() == ()


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TransportError, match="can't be written"):
        KeyFolder(tmp_path / "file" / "keys").new()


def test_the_default_allow_list_is_empty() -> None:
    assert nobody(public()) is False


def test_nothing_is_renamed_or_replaced_in_silence(tmp_path: Path) -> None:
    folder = KeyFolder(tmp_path)
    first, second = public(), public()
    folder.trust("laptop", first)
    with pytest.raises(TransportError, match="trusted as laptop already"):
        folder.trust("phone", first)
    with pytest.raises(TransportError, match="Another key is trusted as laptop"):
        folder.trust("laptop", second)
    assert [(peer.name, peer.key) for peer in folder.trusted()] == [("laptop", first)]
    folder.trust("phone", first, replace=True)
    assert [(peer.name, peer.key) for peer in folder.trusted()] == [("phone", first)]
    folder.trust("phone", second, replace=True)
    assert [(peer.name, peer.key) for peer in folder.trusted()] == [("phone", second)]
    assert not folder.allows(first)
