"""TLS files: what is refused before a start, what is only told, and whom clients trust."""

from __future__ import annotations

import ssl
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from device.access.tls import (
    TlsError,
    check_tls_files,
    complaints,
    now,
    read_certificate,
    server_context,
    trusting,
    trusting_only,
)
from device.settings import TlsFiles
from tests.device.access.certificates import Authority, authority, tls_files


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return tls_files(tmp_path, "device.example", "*.device.example", "127.0.0.1", "::1")


def test_what_a_certificate_says(files: TlsFiles) -> None:
    found = check_tls_files(files)
    assert found == read_certificate(files.certificate)
    assert found.names == ("device.example", "*.device.example", "127.0.0.1", "::1")
    assert found.days_left(now()) == 89
    assert found.days_left(found.ends + timedelta(seconds=1)) == -1
    assert not [*complaints(files, found, now())]


class TestRefusals:
    @pytest.mark.parametrize("part", ["certificate", "key"])
    def test_a_file_that_is_not_there(self, files: TlsFiles, part: str) -> None:
        getattr(files, part).unlink()
        with pytest.raises(TlsError, match=rf"tls_{part} .*{part}.pem can't be read: no such file"):
            check_tls_files(files)

    @pytest.mark.parametrize("part", ["certificate", "key"])
    @pytest.mark.parametrize(
        "content",
        [b"", b"no PEM", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", b"\xff" * 100],
        ids=["empty", "text", "cut", "bytes"],
    )
    def test_a_file_of_something_else(self, files: TlsFiles, part: str, content: bytes) -> None:
        getattr(files, part).write_bytes(content)
        with pytest.raises(TlsError, match=rf"tls_{part} .* in PEM that can be used"):
            check_tls_files(files)

    def test_the_two_exchanged(self, files: TlsFiles) -> None:
        with pytest.raises(TlsError, match="has no certificate in PEM"):
            check_tls_files(TlsFiles(files.key, files.certificate))

    def test_a_file_that_is_no_such_thing_at_all(self, files: TlsFiles) -> None:
        files.key.write_bytes(b"x" * 2**21)
        with pytest.raises(TlsError, match="larger than"):
            check_tls_files(files)

    def test_the_key_of_another(self, files: TlsFiles, tmp_path: Path) -> None:
        other = tls_files(tmp_path / "other", "device.example")
        with pytest.raises(TlsError, match="is not the key of the first certificate"):
            check_tls_files(replace(files, key=other.key))

    def test_a_chain_in_the_wrong_order(self, tmp_path: Path) -> None:
        issuer = authority(tmp_path)
        files = tls_files(tmp_path, "device.example", issuer=issuer)
        own = tls_files(tmp_path / "own", "x", issuer=issuer).certificate.read_bytes()
        files.certificate.write_bytes(issuer.file.read_bytes() + own)
        with pytest.raises(TlsError, match="before its issuers'"):
            check_tls_files(files)

    def test_a_key_with_a_passphrase_asks_nobody(self, tmp_path: Path) -> None:
        with pytest.raises(TlsError, match="is encrypted, and the daemon can't ask for its passphrase"):
            check_tls_files(tls_files(tmp_path, "device.example", passphrase="hush"))


class TestComplaints:
    def test_expired_or_not_yet(self, tmp_path: Path) -> None:
        files = tls_files(tmp_path, "x", days=(-9, -2))
        assert "expired on" in next(complaints(files, check_tls_files(files), now()))
        files = tls_files(tmp_path, "x", days=(2, 9))
        assert "from" in next(complaints(files, check_tls_files(files), now()))

    @pytest.mark.parametrize("mode", [0o640, 0o604], ids=oct)
    def test_a_key_that_others_can_read(self, files: TlsFiles, mode: int) -> None:
        files.key.chmod(mode)
        (text,) = complaints(files, check_tls_files(files), now())
        assert text.endswith(f"run `chmod 600 {files.key}`")


def shaken(files: TlsFiles, client: ssl.SSLContext, name: str) -> None:
    """A handshake in memory between a server with `files` and a client that asks for `name`."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(down, up, server_hostname=name),
        server_context(files).wrap_bio(up, down, server_side=True),
    ]
    done = [False, False]
    while not all(done):
        for number, end in enumerate(ends):
            try:
                end.do_handshake()
                done[number] = True
            except ssl.SSLWantReadError:
                pass


class TestTrust:
    @pytest.fixture
    def issuer(self, tmp_path: Path) -> Authority:
        return authority(tmp_path)

    @pytest.fixture
    def own(self, issuer: Authority, tmp_path: Path) -> TlsFiles:
        return tls_files(tmp_path / "own", "device.example", issuer=issuer)

    def test_own_commands_trust_this_certificate_by_any_name(self, own: TlsFiles) -> None:
        shaken(own, trusting_only(read_certificate(own.certificate)), "127.0.0.1")

    def test_also_when_it_has_expired(self, tmp_path: Path) -> None:
        files = tls_files(tmp_path, "device.example", days=(-9, -2))
        shaken(files, trusting_only(read_certificate(files.certificate)), "127.0.0.1")
        with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
            shaken(files, trusting(files.certificate), "device.example")

    @pytest.mark.parametrize("of", ["the same issuer", "nobody"])
    def test_own_commands_trust_no_other_one(self, own: TlsFiles, issuer: Authority, tmp_path: Path, of: str) -> None:
        """That of the issuer is in the file, too: whoever else it issues certificates to must not get in."""
        other = tls_files(tmp_path / "other", "device.example", issuer=issuer if of == "the same issuer" else None)
        with pytest.raises(ssl.SSLCertVerificationError):
            shaken(other, trusting_only(read_certificate(own.certificate)), "device.example")

    def test_a_self_signed_one_is_trusted_by_its_file_and_name(self, tmp_path: Path) -> None:
        files = tls_files(tmp_path, "device.example")
        shaken(files, trusting(files.certificate), "device.example")
        with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
            shaken(files, trusting(files.certificate), "other.example")
        with pytest.raises(ssl.SSLCertVerificationError):
            shaken(tls_files(tmp_path / "other", "device.example"), trusting(files.certificate), "device.example")

    def test_an_authority(self, own: TlsFiles, issuer: Authority) -> None:
        shaken(own, trusting(issuer.file), "device.example")

    def test_a_file_without_certificates(self, tmp_path: Path) -> None:
        file = tmp_path / "none.pem"
        file.write_text("nothing")
        for path, text in ((file, "has no certificate"), (tmp_path / "gone", "can't be read")):
            with pytest.raises(TlsError, match=text):
                trusting(path)
