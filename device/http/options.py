"""Options of the HTTP interface."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from common.answer.request import Request
from common.configuration.settings import is_loopback
from device.access.admission import ApiKeyGate
from device.settings import TlsFiles
from proto.messages import MOST_TOKENS

ANY_MODEL: Final = "*"  # as an alias: any name


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Address, access, limits, defaults. Raises ValueError off loopback without a key."""

    host: str = "127.0.0.1"
    port: int = 8600  # 0: any free port
    admission: ApiKeyGate | None = None  # None: no key needed
    tls: TlsFiles | None = None  # None: plaintext
    insecure: bool = False  # allow off loopback without a key
    # question and prompt are always replaced
    defaults: Request = field(default_factory=lambda: Request(question="", prompt=""))
    most_tokens: int = MOST_TOKENS  # per answer; requests are cut to it
    allow_origins: frozenset[str] = frozenset()  # of allowed web pages
    model_aliases: frozenset[str] = frozenset()  # other names of the model; `ANY_MODEL`: all
    max_active: int = 8  # answers
    max_waiting: int = 16  # answers without a slot; more get 429
    wait_patience: float = 60.0  # seconds without the first slot until 429
    max_connections: int = 64  # if all are busy, new ones get 503
    head_patience: float = 10.0  # seconds for a request's line and headers, also after an answer
    keep_alive: float = 10.0  # seconds of silence before a comment
    unread_limit: int = 1024  # events before a slow reader's answer is cancelled
    stall_limit: float = 60.0  # seconds that a write may wait, and until the cut after the last one
    body_limit: int = 2**20  # bytes
    files_limit: int = 3 * 2**23  # bytes with files; one is read at a time
    body_patience: float = 30.0  # seconds for a body

    def __post_init__(self) -> None:
        keyed = self.admission is not None and self.admission.wanted
        if not is_loopback(self.host) and not keyed and not self.insecure:
            raise ValueError(
                f"host = {self.host!r} would let everybody on the network question the private documents: make a key"
                " with `dragon api-keys create NAME`, or set insecure = true"
            )
