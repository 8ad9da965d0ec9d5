"""Counts and times of answers, which both daemons note, each answer once: at its end.

Names are vLLM's where it has one, with `dragon_` in place of `vllm:`. A label is one of few words of this program's
own, never a text of a client or a peer: however much they send, the number of series is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram

from common.answer.report import SideReport
from common.answer.request import AnswerFailed, InternalFailure, NoPlace, RequestError
from proto.messages import Side

# Seconds to a first token: a small model that is warm takes a tenth, a prompt of many documents on two cores a minute.
FIRST_TOKEN: Final = (0.05, 0.1, 0.15, 0.25, 0.4, 0.6, 1.0, 1.5, 2.5, 4.0, 6.0, 10.0, 15.0, 25.0, 40.0, 60.0)
# Between two tokens: accepted drafts come milliseconds apart, one that waits for a slow model takes seconds.
BETWEEN_TOKENS: Final = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.4, 0.6, 1.0, 1.5, 2.5, 5.0)
# A whole answer: from a short one of a quick model to 8192 tokens of a slow one.
WHOLE_ANSWER: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
# Waiting for memory: none as a rule, a minute at most.
WAITING: Final = (0.001, 0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0)

OTHER: Final = "other"  # in place of a word that is not one of a label's
BUSY: Final = "busy"  # a failure: there was no place
FAILURES: Final = ("invalid", "no_memory", "failed", "internal")


def failure_kind(failure: Exception) -> str:
    """The kind of failure, one of `FAILURES`."""
    match failure:
        case RequestError():
            return "invalid"
        case NoPlace():
            return "no_memory"
        case InternalFailure():
            return "internal"
        case AnswerFailed():
            return "failed"
        case _:
            return "internal"


class AnswerMetrics:
    """The answers of one daemon. From any thread."""

    def __init__(
        self,
        registry: CollectorRegistry,
        first_token: str,
        methods: Iterable[str],
        reasons: Sequence[str],
        kinds: Sequence[str],
        sides: Sequence[Side] = get_args(Side),
    ) -> None:
        """`first_token` says what is the first token here. `methods`, `reasons` and `kinds` are all words of a label;
        the `sides` are those of which this daemon knows how their drafts did.
        """
        counter = _Counters(registry)
        self._methods = frozenset(methods)
        self._kinds = frozenset(kinds)
        self._first_token = Histogram(
            "dragon_time_to_first_token_seconds", first_token, buckets=FIRST_TOKEN, registry=registry
        )
        self._whole = Histogram(
            "dragon_e2e_request_latency_seconds", "Whole answers", buckets=WHOLE_ANSWER, registry=registry
        )
        self._waited = Histogram(
            "dragon_request_queue_time_seconds", "Waits for KV memory", buckets=WAITING, registry=registry
        )
        self._prompt = counter("prompt_tokens", "Tokens read before answers")
        self._generated = counter("generation_tokens", "Tokens of answers")
        self._success = counter("request_success", "Answers that ended in order", finished_reason=reasons)
        self._failures = counter("request_failures", "Answers that failed or were refused", kind=kinds)
        self._drafted = counter("spec_decode_num_draft_tokens", "Tokens drafted", side=sides)
        self._accepted = counter("spec_decode_num_accepted_tokens", "Drafts that became tokens", side=sides)
        self._rollbacks = counter("rollbacks", "Drafts that did not, and were taken back", side=sides)
        self._branches = counter("branch_tokens", "Drafts beside the chain", side=sides)
        self._used = counter("branches_used", "Rejections behind which a branch went on", side=sides)
        self._answers = Counter(
            "dragon_answers", "Answers by method and who aggregates", ["method", "placement"], registry=registry
        )

    def begun(self, seconds: float) -> None:
        """Note the seconds until the first token of an answer."""
        self._first_token.observe(seconds)

    def waited(self, seconds: float) -> None:
        """Note an answer's wait for KV memory."""
        self._waited.observe(seconds)

    def read(self, tokens: int) -> None:
        """Note the tokens that an answer's prompt and documents have."""
        self._prompt.inc(tokens)

    def generated(self, tokens: int) -> None:
        """Note the tokens of an answer."""
        self._generated.inc(tokens)

    def ended(self, reason: str, seconds: float, method: str, placement: str) -> None:
        """Note an answer that ended in order, and what it took."""
        self._whole.observe(seconds)
        self._success.labels(reason).inc()
        self._answers.labels(method if method in self._methods else OTHER, placement).inc()

    def failed(self, kind: str) -> None:
        """Note an answer that failed, or was refused."""
        self._failures.labels(kind if kind in self._kinds else OTHER).inc()

    def drafts(self, side: Side, of: SideReport) -> None:
        """Note what became of one side's drafts."""
        self._drafted.labels(side).inc(of.drafted)
        self._accepted.labels(side).inc(of.accepted)
        self._rollbacks.labels(side).inc(of.rollbacks)
        self._branches.labels(side).inc(of.branches)
        self._used.labels(side).inc(of.used)


class _Counters:
    """Makes counters that are there from the start, with 0: an alert sees the first failure as a rise."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def __call__(self, name: str, meaning: str, **label: Sequence[str]) -> Counter:
        counter = Counter(f"dragon_{name}", meaning, tuple(label), registry=self._registry)
        for words in label.values():
            for word in words:
                counter.labels(word)
        return counter
