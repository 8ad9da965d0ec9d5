"""The cloud daemon's settings."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from common.configuration import Address, Folder, Settings, default_data, is_loopback
from proto.limits import MOST_DOCUMENTS


class CloudSettings(Settings):
    """Settings of `dragon cloud`: file `cloud.toml`, variables `DRAGON_CLOUD_...`."""

    model_config = SettingsConfigDict(env_prefix="DRAGON_CLOUD_")

    role: ClassVar[Literal["device", "cloud"]] = "cloud"

    data: Folder = Field(default_factory=lambda: default_data("cloud"))
    bind: Address = "tcp://127.0.0.1:8601"
    insecure: bool = False  # allow a plaintext bind that others can reach
    max_sessions: int = Field(default=64, ge=1, lt=2**20)  # answers at a time
    max_sessions_per_key: int = Field(default=16, ge=1, lt=2**20)  # of one device among them
    session_idle_seconds: float = Field(default=60.0, gt=0, allow_inf_nan=False)  # silence after which one is dropped
    max_query_bytes: int = Field(default=8192, ge=1, lt=2**15)  # of UTF-8
    max_documents: int = Field(default=MOST_DOCUMENTS, ge=1, le=MOST_DOCUMENTS)  # that one answer may retrieve here

    def refusal(self) -> str | None:
        """The reason that these settings don't go together, in one sentence; None when they do."""
        if not is_loopback(self.bind) and self.curve == "off" and not self.insecure:
            return (
                f"bind = {self.bind!r} with curve = 'off' would serve everybody on the network in the clear:"
                " set curve = 'auto', or insecure = true"
            )
        return None
