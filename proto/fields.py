"""Types and bounds of the fields that several messages have."""

from __future__ import annotations

from typing import Annotated, Literal

from proto import limits
from proto.bounds import Count, Text

Side = Literal["device", "cloud"]
OTHER: dict[Side, Side] = {"device": "cloud", "cloud": "device"}
Sampler = Literal["race", "paper", "rejection"]
Placement = Literal["device", "cloud", "greedy", "random", "mirrored"]
Codec = Literal["race", "top-p", "raw"]
Aggregation = Literal["output", "context", "blocks"]
Form = Literal["text", "kv"]
Exactness = Literal["bit-exact", "rounded", "near"]  # of repeated computations, the best first

SessionId = Annotated[int, Count(2**32, least=1)]
AnySession = Annotated[int, Count(2**32)]  # 0: the link itself
Epoch = Annotated[int, Count(2**32)]
Position = Annotated[int, Count(2**20)]
Token = Annotated[int, Count(2**24)]
Digest = Annotated[int, Count(2**61)]
Name = Annotated[str, Text(256)]
Question = Annotated[str, Text(limits.LONGEST_QUESTION)]  # what is looked up in the library
Earlier = Annotated[str, Text(limits.LONGEST_QUESTION)]  # questions of the conversation that it may follow up on
Wanted = Annotated[int, Count(limits.MOST_DOCUMENTS + 1)]  # documents to retrieve
Patterns = Annotated[  # of the documents that may be retrieved; none: all
    tuple[Annotated[str, Text(limits.LONGEST_PATTERN)], ...], Count(limits.MOST_PATTERNS + 1)
]
EosIds = Annotated[tuple[Token, ...], Count(257)]  # end-of-sequence ids, strictly increasing
