"""The cloud daemon's settings."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field
from pydantic_settings import SettingsConfigDict

from common.configuration.settings import Address, Folder, Settings, is_loopback
from proto.limits import MOST_DOCUMENTS

_PLACE = re.compile(r"(\[[^\]\s]+\]|[^:/\s]+):(?P<port>\d{1,5})")


def _place(value: object) -> str:
    """`HOST:PORT` of what listens for scrapes; a port alone is one of this machine's own."""
    text = f"127.0.0.1:{value}" if re.fullmatch(r"\d+", str(value)) else str(value)
    match = _PLACE.fullmatch(text)
    if match is None or not 0 < int(match["port"]) < 2**16:
        raise ValueError("metrics are listened for at a port, e.g. 9464, or an address like 0.0.0.0:9464")
    return text


Place = Annotated[str, BeforeValidator(_place)]


class CloudSettings(Settings):
    """Settings of `dragon cloud`: file `cloud.toml`, variables `DRAGON_CLOUD_...`."""

    model_config = SettingsConfigDict(env_prefix="DRAGON_CLOUD_")

    role: ClassVar[Literal["device", "cloud"]] = "cloud"

    data: Folder = Field(default_factory=lambda known: known["data_dir"] / "cloud")
    """Folder of this role's state: library, keys, decode profile, keys and values of documents."""
    bind: Address = "tcp://127.0.0.1:8601"
    """Address that the cloud listens on."""
    metrics: Place | None = None
    """Port on this machine, or HOST:PORT, at which Prometheus finds metrics; none: nowhere."""
    insecure: bool = False
    """Allow what would be readable or open to everybody on the network."""
    max_sessions: int = Field(default=64, ge=1, lt=2**20)
    """Answers at a time, of all devices together."""
    max_sessions_per_key: int = Field(default=16, ge=1, lt=2**20)
    """Answers at a time of one device."""
    workers: int = Field(default=0, ge=0, le=256)
    """Processes that answer, each with a model, behind the one that devices reach; 0: one process does all."""
    worker_silence_seconds: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    """Silence of such a process after which it is killed and another one is started."""
    eager: int = Field(default=4, ge=0, lt=2**20)
    """Answers under way up to which those of `coupled` decode on while they wait for proposals."""
    session_idle_seconds: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    """Silence of a device after which its answer is dropped."""
    max_query_bytes: int = Field(default=8192, ge=1, lt=2**15)
    """Longest prompt, in bytes of UTF-8."""
    max_documents: int = Field(default=MOST_DOCUMENTS, ge=1, le=MOST_DOCUMENTS)
    """Most chunks that one answer may retrieve."""

    @property
    def shares_machine(self) -> bool:
        """Whether devices run on this machine only."""
        return is_loopback(self.bind)

    def refusal(self) -> str | None:
        """The reason that these settings don't go together, in one sentence; None when they do."""
        if not is_loopback(self.bind) and self.curve == "off" and not self.insecure:
            return (
                f"bind = {self.bind!r} with curve = 'off' would serve everybody on the network in the clear:"
                " set curve = 'auto', or insecure = true"
            )
        if self.workers and self.metrics is not None:
            return "metrics are told by a cloud of one process: leave out metrics, or workers"
        return None
