"""Certificates and keys, made for a test: self-signed, or issued by an authority."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)

from device.settings import TlsFiles


@dataclass(frozen=True)
class Authority:
    """Issues certificates; `file` has its own."""

    file: Path
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def authority(folder: Path) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _signed("authority", (), key, key, _name("authority"), True, (-1, 90))
    file = folder / "authority.pem"
    file.write_bytes(certificate.public_bytes(Encoding.PEM))
    return Authority(file, certificate, key)


def tls_files(
    folder: Path,
    *names: str,
    days: tuple[float, float] = (-1, 90),
    issuer: Authority | None = None,
    passphrase: str | None = None,
) -> TlsFiles:
    """A certificate that holds from and until so many `days` from now, self-signed unless there is an issuer."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    signer, issued_by = (key, _name("server")) if issuer is None else (issuer.key, issuer.certificate.subject)
    certificate = _signed("server", names, key, signer, issued_by, False, days)
    chain = [certificate] if issuer is None else [certificate, issuer.certificate]
    files = TlsFiles(folder / "certificate.pem", folder / "key.pem")
    files.certificate.write_bytes(b"".join(each.public_bytes(Encoding.PEM) for each in chain))
    encryption: KeySerializationEncryption = NoEncryption()
    if passphrase is not None:
        encryption = BestAvailableEncryption(passphrase.encode())
    files.key.touch(0o600)
    files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    return files


def _signed(
    name: str,
    names: tuple[str, ...],
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    issued_by: x509.Name,
    issues: bool,
    days: tuple[float, float],
) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(issued_by)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=days[0]))
        .not_valid_after(now + timedelta(days=days[1]))
        .add_extension(x509.BasicConstraints(ca=issues, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([*map(_general, names)]), critical=False)
    return builder.sign(signer, hashes.SHA256())


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
