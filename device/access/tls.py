"""TLS files of the HTTP interface, and the trust of local commands."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from device.settings import TlsFiles

MOST_BYTES: Final = 2**20  # per file; chains take a few thousand
_OTHERS: Final = 0o077  # rights of group and others
_DAY: Final = timedelta(days=1)
_NO_CHECK_TIME: Final = 0x200000  # X509_V_FLAG_NO_CHECK_TIME, missing in the module ssl


class TlsError(ValueError):
    """The files can't be used. The text is a sentence for the user."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """The first certificate of a file."""

    names: tuple[str, ...]  # hosts, then addresses
    begins: datetime
    ends: datetime
    pem: str = field(repr=False)

    def days_left(self, now: datetime) -> int:
        """Returns the whole days until its end, negative after that."""
        return (self.ends - now) // _DAY


def read_certificate(path: Path) -> Certificate:
    """Returns the certificate that a server shows. Raises `TlsError`."""
    return _described(_certificate(path))


def check_tls_files(files: TlsFiles) -> Certificate:
    """Returns the certificate of matching, usable files. Raises `TlsError`."""
    certificate = _certificate(files.certificate)
    text = _read(files.key, "tls_key")
    try:
        key = load_pem_private_key(text, None)
    except TypeError:
        raise TlsError(
            f"tls_key {files.key} is encrypted, and the daemon can't ask for its passphrase; write it without one "
            f"(`openssl pkey -in {files.key} -out NEW`), readable only by this user"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise TlsError(f"tls_key {files.key} has no private key in PEM that can be used") from None
    forms = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    if key.public_key().public_bytes(*forms) != certificate.public_key().public_bytes(*forms):
        raise TlsError(
            f"tls_key {files.key} is not the key of the first certificate in {files.certificate}: name files that "
            "belong together, with the server's own certificate before its issuers'"
        )
    server_context(files)
    return _described(certificate)


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Raises `TlsError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(files.certificate, files.key, password=_refuse_password)
    except (ssl.SSLError, OSError) as error:
        raise TlsError(f"{files.certificate} and {files.key} are refused by OpenSSL: {_reason(error)}") from None
    return context


def complaints(files: TlsFiles, certificate: Certificate, now: datetime) -> Iterator[str]:
    """Yields complaints about usable files, a clause each."""
    if now > certificate.ends:
        yield f"the certificate {files.certificate} expired on {certificate.ends:%Y-%m-%d}: clients refuse it"
    if now < certificate.begins:
        yield (
            f"the certificate {files.certificate} is valid only from {certificate.begins:%Y-%m-%d} on: clients refuse "
            "it"
        )
    if files.key.stat().st_mode & _OTHERS:
        yield f"others on this machine can read the private key {files.key}; run `chmod 600 {files.key}`"


def trusting_only(certificate: Certificate) -> ssl.SSLContext:
    """Returns a local client's TLS context, which trusts this certificate under any name.

    Few certificates name loopback. The server must have this certificate's key, which proves more than a name or
    date. Issuers do not count.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    context.load_verify_locations(cadata=certificate.pem)
    return context


def trusting(authority: Path) -> ssl.SSLContext:
    """Returns a client's TLS context, which trusts the PEM file `authority`.

    Certificates issued by these are trusted, too. Compares names. Raises `TlsError`.
    """
    text = _read(authority, "the certificates to trust,").decode("ascii", "replace")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts nobody so far, compares names
    try:
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError):
        raise TlsError(f"{authority} has no certificate in PEM that can be trusted") from None
    return context


def now() -> datetime:
    return datetime.now(UTC)


def _refuse_password() -> str:
    """Prevents OpenSSL's prompt for a key encrypted since its check."""
    return ""


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificates(_read(path, "tls_certificate"))[0]
    except (ValueError, UnsupportedAlgorithm, IndexError) as error:
        if isinstance(error, TlsError):
            raise
        raise TlsError(f"tls_certificate {path} has no certificate in PEM that can be used") from None


def _described(certificate: x509.Certificate) -> Certificate:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = (*found.get_values_for_type(x509.DNSName), *map(str, found.get_values_for_type(x509.IPAddress)))
    except (x509.ExtensionNotFound, ValueError):
        names = ()
    text = certificate.public_bytes(Encoding.PEM).decode("ascii")
    return Certificate(names, certificate.not_valid_before_utc, certificate.not_valid_after_utc, text)


def _read(path: Path, what: str) -> bytes:
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise TlsError(f"{what} {path} can't be read: {(error.strerror or str(error)).lower()}") from None
    if len(text) > MOST_BYTES:
        raise TlsError(f"{what} {path} is larger than {MOST_BYTES} bytes: it is the wrong file")
    return text


def _reason(error: OSError) -> str:
    return str(getattr(error, "reason", None) or error.strerror or error).replace("_", " ").lower()
