"""Options of the HTTP interface."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from common.answer.request import Request
from common.configuration.settings import is_loopback
from device.access.admission import ApiKeyGate
from device.settings import TlsFiles
from proto.messages import MOST_TOKENS

ANY_MODEL: Final = "*"  # as an alias: any model name in a request


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Address, access, limits and defaults. Raises ValueError off loopback without an API key."""

    host: str = "127.0.0.1"
    port: int = 8600  # 0: any free port
    admission: ApiKeyGate | None = None  # accepted keys; None: no key needed
    tls: TlsFiles | None = None  # None: plaintext
    insecure: bool = False  # listen off loopback without a key
    # for omitted fields; question and prompt are always replaced
    defaults: Request = field(default_factory=lambda: Request(question="", prompt=""))
    most_tokens: int = MOST_TOKENS  # per answer; larger requests are cut to it
    allow_origins: frozenset[str] = frozenset()  # origins whose web pages may send requests
    model_aliases: frozenset[str] = frozenset()  # additional names of the model; `ANY_MODEL`: all
    max_active: int = 8  # concurrent answers
    max_waiting: int = 16  # answers waiting for a slot; more get 429
    wait_patience: float = 60.0  # seconds until a request without its first slot gets 429
    max_connections: int = 64  # at a time; if all are busy, new ones get 503 and are closed
    head_patience: float = 10.0  # seconds for a request's first line and headers, also after an earlier answer
    keep_alive: float = 10.0  # seconds of silence before a stream sends a comment
    unread_limit: int = 1024  # events that a stream's reader may lag behind before its answer is cancelled
    stall_limit: float = 60.0  # seconds that one write may wait for the reader, and until a cut-off after the last one
    body_limit: int = 2**20  # bytes
    files_limit: int = 3 * 2**23  # bytes of a body with files; one such body is read at a time
    body_patience: float = 30.0  # seconds for a body to arrive

    def __post_init__(self) -> None:
        keyed = self.admission is not None and self.admission.wanted
        if not is_loopback(self.host) and not keyed and not self.insecure:
            raise ValueError(
                f"host = {self.host!r} would let everybody on the network question the private documents: make a key"
                " with `dragon api-keys create NAME`, or set insecure = true"
            )
