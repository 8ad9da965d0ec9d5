"""Options of the HTTP interface."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from common.answer.request import Request
from common.configuration.settings import is_loopback
from device.access.admission import ApiKeyGate
from device.settings import TlsFiles
from proto.messages import MOST_TOKENS

ANY_MODEL: Final = "*"  # as an alias: whatever model a request names


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Address to listen on, who may ask, and limits, and defaults for fields that a request leaves out.

    Raises ValueError for a bind off loopback without an API key.
    """

    host: str = "127.0.0.1"
    port: int = 8600  # 0: any free port
    admission: ApiKeyGate | None = None  # whose keys count; none: nobody needs one
    tls: TlsFiles | None = None  # none: in the clear
    insecure: bool = False  # listen off loopback without a key
    # for fields that a client leaves out; question and prompt are always replaced
    defaults: Request = field(default_factory=lambda: Request(question="", prompt=""))
    most_tokens: int = MOST_TOKENS  # of an answer; a request for more gets that many
    allow_origins: frozenset[str] = frozenset()  # whose web pages may ask; of no other page, whatever its site
    model_aliases: frozenset[str] = frozenset()  # other names under which the model is served; `ANY_MODEL`: all
    max_active: int = 8  # answers at a time
    max_waiting: int = 16  # answers that wait for a place; more get 429
    wait_patience: float = 60.0  # seconds that a request waits for its first place before it gets 429
    max_connections: int = 64  # at a time; when all are being answered, more get 503 and are closed
    head_patience: float = 10.0  # seconds for a request's first line and headers to arrive, also after another answer
    keep_alive: float = 10.0  # seconds of silence before a comment keeps a stream's connection open
    unread_limit: int = 1024  # events a stream's reader may lag behind before its answer is cancelled
    stall_limit: float = 60.0  # seconds one write may wait for the reader, and until it is cut off after the last one
    body_limit: int = 2**20  # bytes
    files_limit: int = 3 * 2**23  # bytes of a body with files, of which one is read at a time
    body_patience: float = 30.0  # seconds for a request's body to arrive

    def __post_init__(self) -> None:
        keyed = self.admission is not None and self.admission.wanted
        if not is_loopback(self.host) and not keyed and not self.insecure:
            raise ValueError(
                f"host = {self.host!r} would let everybody on the network question the private documents: make a key"
                " with `dragon api-keys create NAME`, or set insecure = true"
            )
