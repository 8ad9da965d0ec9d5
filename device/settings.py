"""The device daemon's settings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field
from pydantic_settings import SettingsConfigDict

from common.answer.request import Privacy, Unmatched
from common.configuration.settings import Address, DraftModel, File, Folder, LocalTarget, Settings, is_loopback
from proto.messages import MOST_ENTRIES, Placement

MOST_WAITING = 1024
DEFAULT_PORTS = {"http": 80, "https": 443}

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")


def _origins(value: str) -> str:
    for each in origins_in(value):
        if _ORIGIN.fullmatch(each) is None:
            raise ValueError(
                "an origin looks like http://localhost:3000, without a path; several have commas between them"
            )
    return value


def origins_in(value: str | None) -> frozenset[str]:
    """Splits a comma-separated setting, and drops default ports, as browsers do."""
    return frozenset(_without_default_port(each.strip()) for each in value.split(",")) if value else frozenset()


def names_in(value: str | None) -> frozenset[str]:
    """Splits a comma-separated setting."""
    return frozenset(each.strip() for each in value.split(",") if each.strip()) if value else frozenset()


def _without_default_port(origin: str) -> str:
    port = DEFAULT_PORTS.get(origin.partition("://")[0])
    return origin if port is None else origin.removesuffix(f":{port}")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: a certificate, perhaps with its issuers', and its private key."""

    certificate: Path
    key: Path


Origins = Annotated[str, AfterValidator(_origins)]


class DeviceSettings(Settings):
    """Settings of `dragon device`: file `device.toml`, variables `DRAGON_DEVICE_...`."""

    model_config = SettingsConfigDict(env_prefix="DRAGON_DEVICE_")

    role: ClassVar[Literal["device", "cloud"]] = "device"

    data: Folder = Field(default_factory=lambda known: known["data_dir"] / "device")
    """Folder of this role's state: library, keys, uploads, decode profile, keys and values of documents."""
    host: str = Field(default="127.0.0.1", min_length=1)
    """Address of the HTTP interface; off loopback it needs an API key."""
    port: int = Field(default=8600, ge=0, lt=2**16)
    """Port of the HTTP interface; 0: any free one."""
    tls_certificate: File = None
    """PEM file of the certificate, followed by its issuers'. With it the daemon serves HTTPS instead of HTTP."""
    tls_key: File = None
    """PEM file of the certificate's private key."""
    queue: int = Field(default=16, ge=0, le=MOST_WAITING)
    """HTTP answers that may wait for a slot; the daemon refuses further ones."""
    allow_origins: Origins | None = Field(default=None, min_length=1)
    """Origins whose web pages may use the HTTP interface, e.g. http://localhost:3000; commas between several."""
    model_aliases: str | None = Field(default=None, min_length=1)
    """Other model names that HTTP clients may use for this model, e.g. gpt-4o,gpt-5; *: any."""
    cloud: Address | None = "tcp://127.0.0.1:8601"
    """The cloud's address; none: the device answers alone."""
    insecure: bool = False
    """Allow unencrypted links and open access for everybody on the network."""
    privacy: Privacy = "strict"
    """Most data that may leave the device."""
    sampler: Literal["race", "paper"] = "race"
    """How tokens are drawn: by the race, or by the paper's baseline."""
    placement: Placement = "device"
    """Side that aggregates; all values except device need privacy balanced."""
    entries: int = Field(default=32, ge=1, le=MOST_ENTRIES)
    """K: entries of a race list."""
    unmatched: Unmatched = "warn"
    """If no document is close to a question: answer without documents and say so, refuse, or answer from them."""
    match_from: float = Field(default=0.4, ge=-1.0, le=1.0, allow_inf_nan=False)
    """Least cosine of a document and a question that are close; it depends on the embedder."""
    end_repetition: bool = True
    """Whether to stop an answer that repeats itself."""
    patience: float = Field(default=2.0, gt=0, allow_inf_nan=False)
    """Seconds that the device waits for the cloud before it continues alone."""
    wait_seconds: float = Field(default=3600.0, gt=0, allow_inf_nan=False)
    """Seconds without a token after which an answer fails if its request waits for the cloud."""

    draft_model: str | None = Field(default="auto", min_length=1)
    """Model that drafts for methods that verify; auto: the embedded draft for the embedded model, else the model."""
    emulate_draft_ms: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Least milliseconds of a step of the draft model, to simulate slower hardware."""

    local_target: str | None = Field(default=None, min_length=1)
    """Model that verifies on this device, with method edgellm; none: the model itself."""
    memory_budget: int | None = Field(default=None, ge=2**20)
    """Memory for local_target and draft_model in bytes; every pass reads the rest from disk. none: no limit."""
    emulate_read_mbps: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Most megabytes per second that are read of local_target, to simulate a slower disk."""
    read_ahead: bool = True
    """Whether layers of local_target are read before they are needed; false is a baseline, for experiments."""

    @property
    def uploads(self) -> Path:
        return self.data / "uploads"

    @property
    def shares_machine(self) -> bool:
        """Whether the cloud runs on this machine, by these settings."""
        return self.cloud is not None and self.privacy != "offline" and is_loopback(self.cloud)

    @property
    def request_files(self) -> Path:
        return self.data / "request-files"

    @property
    def kept(self) -> dict[str, Path]:
        return {"uploads": self.uploads, "request files": self.request_files} | super().kept

    @property
    def private_folders(self) -> tuple[Path, ...]:
        return *super().private_folders, self.uploads, self.request_files

    @property
    def tls(self) -> TlsFiles | None:
        if self.tls_certificate is None or self.tls_key is None:
            return None
        return TlsFiles(self.tls_certificate, self.tls_key)

    @property
    def verifying(self) -> LocalTarget | None:
        """The separate verifying model, None if the own one verifies."""
        if self.local_target is None:
            return None
        speed = None if self.emulate_read_mbps is None else self.emulate_read_mbps * 1e6
        return LocalTarget(self.local_target, self.memory_budget, speed, self.read_ahead)

    @property
    def draft(self) -> DraftModel | None:
        step = None if self.emulate_draft_ms is None else self.emulate_draft_ms / 1e3
        return None if self.draft_model is None else DraftModel(self.draft_model, step)

    def refusal(self) -> str | None:
        """Returns a sentence on conflicting settings, None without conflict."""
        if self.privacy in ("strict", "secret") and self.placement != "device":
            return (
                f"placement = {self.placement!r} sends numbers computed from private documents to the cloud,"
                f" which privacy = {self.privacy!r} forbids: set privacy = 'balanced', or placement = 'device'"
            )
        if self.privacy == "secret" and self.sampler == "paper":
            return (
                "privacy = 'secret' needs the race, as the paper's sampler draws by a seed that the cloud has:"
                " set sampler = 'race', or another privacy"
            )
        if self.placement == "mirrored" and self.sampler == "paper":
            return (
                "placement = 'mirrored' needs the race, as only there both sides find the same token:"
                " set sampler = 'race', or another placement"
            )
        if self.memory_budget is not None and self.local_target is None:
            return "memory_budget is for local_target: set local_target, or memory_budget = 'none'"
        if (self.tls_certificate is None) != (self.tls_key is None):
            return "HTTPS needs both files: set tls_certificate and tls_key, or neither"
        if self.insecure:
            return None
        if self.cloud is not None and not is_loopback(self.cloud) and self.curve == "off":
            return (
                f"cloud = {self.cloud!r} with curve = 'off' would send questions and answers unencrypted: set curve = "
                "'auto', or insecure = true"
            )
        return None
