"""Coupled drafting: both sides race on the position's noise; equal drafts are accepted.

With the noise E of (seed, position, token), the drafter proposes argmax_i q_i / E_i^T. The verifier decides argmax_i
p_i / E_i^T. So the answer is the verifier's alone for the seed, with any drafter. The acceptance is Σ_i 1 / Σ_j max(p_j
/ p_i, q_j / q_i), between (1 - TV) / (1 + TV) and 1 - TV.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from common.answer.values import View
from common.draft_policy.times import DraftPlan
from common.methods.drafted.drafting import Judgement, RoundsConfig
from common.sampling.compiled import DrawPoint
from common.sampling.race import RaceWinner, Racing
from common.sampling.rejection import Warp
from proto.codes import BitReader, BitWriter, decode_count, encode_number
from proto.errors import malformed
from proto.messages import MOST_PROPOSED, Propose

# --- tokens

TOKENS_FORMAT: Final = 0


def encode_tokens(tokens: Sequence[int], vocabulary: int) -> bytes:
    """Encode format byte, number, ids in ceil(log2 `vocabulary`) bits. Raises `ValueError` if too large."""
    bits, width = BitWriter(), (vocabulary - 1).bit_length()
    for token in tokens:
        bits.write(token, width)
    return b"".join((bytes((TOKENS_FORMAT,)), encode_number(len(tokens)), bits.data()))


def decode_tokens(data: bytes, vocabulary: int, limit: int) -> list[int]:
    """Decode 1 to `limit` ids. Raises `ProtocolError`."""
    count, start = decode_count(data, "tokens", TOKENS_FORMAT, limit, "id", "ids")
    bits, width = BitReader(data[start:]), (vocabulary - 1).bit_length()
    tokens = [bits.read(width) for _ in range(count)]
    bits.finish()
    if max(tokens) >= vocabulary:
        raise malformed(f"the ids of a tokens payload must be below {vocabulary}")
    return tokens


# --- the scheme


@dataclass(frozen=True, slots=True)
class TokenDrafts:
    """Implements `Drafts`: token ids without distributions."""

    vocabulary: int

    def planned(self, plan: DraftPlan) -> None:
        """Ignore the plan."""

    def drawn(self, place: DrawPoint, view: RaceWinner) -> RaceWinner:
        """Drawn by the position's noise alone, like the verifier's."""
        return view

    def pack(self, views: Sequence[View], length: int) -> tuple[tuple[int, ...], bytes]:
        return (), encode_tokens([view.token for view in views], self.vocabulary)

    def settle(self, place: DrawPoint, view: Any, payload: bytes) -> int:
        raise malformed("a verdict must name the token that replaces a rejected one")


@dataclass(frozen=True, slots=True)
class Equality:
    """Implements `Judge`: accepts equal tokens."""

    slow: ClassVar[bool] = False

    vocabulary: int

    def check(self, message: Propose) -> None:
        """Refuse nothing: `read` is as quick."""

    def read(self, message: Propose) -> Sequence[RaceWinner]:
        if message.tokens:
            raise malformed("the tokens of a coupled proposal must be in its payload")
        return [RaceWinner(token) for token in decode_tokens(message.payload, self.vocabulary, MOST_PROPOSED)]

    def judge(self, place: DrawPoint, proposed: Sequence[View], targets: Sequence[View]) -> Judgement:
        for accepted, (draft, target) in enumerate(zip(proposed, targets, strict=False)):
            if draft.token != target.token:
                return Judgement(accepted, target.token)
        return Judgement(len(proposed), targets[-1].token if len(targets) > len(proposed) else None)


@dataclass(frozen=True, slots=True)
class CoupledScheme:
    """Implements `Scheme`."""

    config: RoundsConfig
    drafter: Racing
    verifier: Racing
    drafts: TokenDrafts
    judge: Equality

    @property
    def cut(self) -> Warp | None:
        return None  # the processors truncate a race

    @property
    def token_bytes(self) -> Mapping[int | None, float]:
        return {None: (self.config.vocabulary - 1).bit_length() / 8}
