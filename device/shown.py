"""The tokens of one answer as its reader sees them: text, in events."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import Final

from common.answer.request import Request
from common.answer.values import Commit
from common.engine.model.tokenizer import StopFilter, Tokenizer
from device.interface import Finished, FinishReason, Provisional, Tell, TokenChance, TokenEvent, Unmatched, Waiting

RECENT = 8  # tokens behind which provisional ones are decoded
NOTHING: Final = -1.0  # the closeness where no document was found
NOT_FOUND: Final = "No document was found: the model answers without any, and may invent."
NOT_CLOSE: Final = "No document is close to the question: the model answers without any, and may invent."
REFUSAL: Final = "I don't know: no document that was found is close to the question."  # in place of the answer

# An answer that says the same again and again, as small models do to the last token.
LONGEST_CYCLE: Final = 32  # tokens
SHORTEST_RUN: Final = 48  # tokens
FEWEST_CYCLES: Final = 4


class ShownAnswer:
    """Events as they are told; an answer has at most `max_tokens` of them, and one for each wait. From any thread, but
    for one token at a time.
    """

    def __init__(self, request: Request, tokenizer: Tokenizer, eos: Collection[int], tell: Tell) -> None:
        self.reason: FinishReason = "cancelled"
        self._request = request
        self._tokenizer = tokenizer
        self._eos = eos
        self._tokens = 0
        self._text: list[str] = []
        self._stream = tokenizer.stream()
        self._stops = StopFilter(request.stop)
        self._recent: deque[int] = deque(maxlen=RECENT)
        # In a format that is data, and cut it would be none.
        bound = request.response_format is not None or (request.calls is not None and request.calls.must)
        self._repetition = Repetition() if request.end_repetition and not bound else None
        self.repeats = False  # it was ended because it did nothing else
        self._tell = tell

    @property
    def text(self) -> str:
        """All that was shown."""
        return "".join(self._text)

    def committed(self, commit: Commit, alone: bool) -> bool:
        """Show a token, which is final; `alone`: the whole answer is the device's. Returns whether it goes on."""
        self._tokens += 1
        self._recent.append(commit.token)
        if commit.token in self._eos:
            self.reason = "stop"
            self._emit(commit, self._rest(), alone)
            return True
        text, stopped = self._stops.push(self._stream.push(commit.token))
        if stopped:
            self.reason = "stop"
        elif self._repetition is not None and self._repetition.push(commit.token):
            self.reason, self.repeats, stopped = "stop", True, True
            text += self._rest()
        elif self._tokens >= self._request.max_tokens:
            self.reason = "length"
            text += self._rest()
        self._emit(commit, text, alone)
        return not stopped

    def unmatched(self, closest: float) -> None:
        """Show that no document is close to the question, before the first token."""
        self._tell(Unmatched(closest, NOT_FOUND if closest == NOTHING else NOT_CLOSE))

    def refuse(self, commit: Commit) -> None:
        """Show that no document is close to the question in place of the first token, and of all others."""
        self.reason = "stop"
        self._text.append(REFUSAL)
        self._tell(TokenEvent(REFUSAL, commit.token, commit.position, commit.degraded))

    def provisional(self, drafts: Sequence[int]) -> None:
        """Show tokens that may be taken back."""
        self._tell(Provisional(self._tokenizer.continuation(self._recent, drafts)))

    def waiting(self) -> None:
        """Show that the cloud is waited for."""
        self._tell(Waiting())

    def end(self, event: Finished | Exception) -> None:
        """Show the last event."""
        self._tell(event)

    def _rest(self) -> str:
        text, stopped = self._stops.push(self._stream.finish())
        return text if stopped else text + self._stops.finish()

    def _emit(self, commit: Commit, text: str, alone: bool) -> None:
        self._text.append(text)
        degraded = commit.degraded or alone
        self._tell(TokenEvent(text, commit.token, commit.position, degraded, self._chances(commit)))

    def _chances(self, commit: Commit) -> tuple[TokenChance, ...]:
        """Log-probabilities that were asked for; none of the end of the sequence, which is no text."""
        wanted = self._request.top_logprobs
        if commit.logprobs is None or wanted is None or commit.token in self._eos:
            return ()
        told = [(commit.token, commit.logprobs.token), *commit.logprobs.top[:wanted]]
        return tuple(TokenChance(self._tokenizer.piece(token), logprob) for token, logprob in told)


class Repetition:
    """Looks at the end of an answer, token by token."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._runs = [0] * (LONGEST_CYCLE + 1)  # by length of the cycle: tokens at the end that equal those before

    def push(self, token: int) -> bool:
        """Take the next token; whether the end is now nothing but one cycle, said `FEWEST_CYCLES` times or more and
        over `SHORTEST_RUN` tokens.
        """
        self._tokens.append(token)
        place, ended = len(self._tokens) - 1, False
        for cycle in range(1, LONGEST_CYCLE + 1):
            before = place - cycle
            same = before >= 0 and self._tokens[before] == token
            run = self._runs[cycle] = self._runs[cycle] + 1 if same else 0
            # The run counts from the second time on.
            ended |= run + cycle >= max(SHORTEST_RUN, FEWEST_CYCLES * cycle)
        return ended
