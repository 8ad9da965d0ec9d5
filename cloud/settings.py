"""The cloud daemon's settings."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import SettingsConfigDict

from common.configuration.settings import Address, Folder, Settings, is_loopback
from proto.messages import MOST_DOCUMENTS

LOCAL: Final = "local"  # a Ray cluster on this machine, started and ended with the daemon

_PLACE = re.compile(r"(\[[^\]\s]+\]|[^:/\s]+):(?P<port>\d{1,5})")


def _place(value: object) -> str:
    """`HOST:PORT` of the metrics server; a bare port is on loopback."""
    text = f"127.0.0.1:{value}" if re.fullmatch(r"\d+", str(value)) else str(value)
    match = _PLACE.fullmatch(text)
    if match is None or not 0 < int(match["port"]) < 2**16:
        raise ValueError("metrics are listened for at a port, e.g. 9464, or an address like 0.0.0.0:9464")
    return text


def _cluster(text: str) -> str:
    match = _PLACE.fullmatch(text)
    if match is not None and text.startswith("["):
        raise ValueError("a Ray cluster is reached over IPv4: name its head, or give an address of that kind")
    if text != LOCAL and (match is None or not 0 < int(match["port"]) < 2**16):
        raise ValueError(f"the head of a Ray cluster is HOST:PORT, e.g. 192.0.2.7:6379; or {LOCAL}")
    return text


Place = Annotated[str, BeforeValidator(_place)]
Cluster = Annotated[str, AfterValidator(_cluster)]


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
    """Allow unencrypted links and open access for everybody on the network."""
    max_sessions: int = Field(default=64, ge=1, lt=2**20)
    """Most answers at the same time, of all devices together."""
    max_sessions_per_key: int = Field(default=16, ge=1, lt=2**20)
    """Most answers at the same time of one device."""
    workers: int = Field(default=0, ge=0, le=256)
    """Worker processes, each with a model, beside a gateway that devices reach; 0: one process does all."""
    ray: Cluster | None = None
    """Head of the Ray cluster that runs the workers, as HOST:PORT; local: a cluster of this machine."""
    worker_gpus: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """GPUs that Ray reserves for each worker; a fraction shares one."""
    worker_silence_seconds: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    """Silence of a worker process, or of one of its threads, after which the gateway kills and replaces it."""
    eager: int = Field(default=4, ge=0, lt=2**20)
    """Number of running answers up to which `coupled` ones continue decoding while they wait for proposals."""
    session_idle_seconds: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    """Silence of a device after which its answer is dropped."""
    max_query_bytes: int = Field(default=8192, ge=1, lt=2**15)
    """Longest question, in bytes of UTF-8."""
    max_documents: int = Field(default=MOST_DOCUMENTS, ge=1, le=MOST_DOCUMENTS)
    """Most chunks that one answer may retrieve."""

    @property
    def shares_machine(self) -> bool:
        """Whether devices run on this machine only."""
        return is_loopback(self.bind)

    def refusal(self) -> str | None:
        """Returns a sentence on conflicting settings, None without conflict."""
        if not is_loopback(self.bind) and self.curve == "off" and not self.insecure:
            return (
                f"bind = {self.bind!r} with curve = 'off' would serve everybody on the network unencrypted: set curve "
                "= 'auto', or insecure = true"
            )
        if self.ray is not None and not self.workers:
            return f"ray = {self.ray!r} runs workers: say how many with workers"
        if self.worker_gpus and self.ray is None:
            return f"worker_gpus = {self.worker_gpus:g} is what Ray reserves: set ray, or leave worker_gpus out"
        return None
