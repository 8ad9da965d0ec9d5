"""Counts and times of answers in both daemons, recorded once per answer.

Names are vLLM's where it has one, with `dragon_` for `vllm:`. Labels are from a fixed set of words, never a client's,
so the number of series is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram

from common.answer.report import SideReport
from common.answer.request import AnswerFailed, InternalFailure, NoPlace, RequestError
from proto.messages import Side

# Seconds to a first token: a tenth for a warm small model, a minute for many documents on two cores.
FIRST_TOKEN: Final = (0.05, 0.1, 0.15, 0.25, 0.4, 0.6, 1.0, 1.5, 2.5, 4.0, 6.0, 10.0, 15.0, 25.0, 40.0, 60.0)
# Seconds between tokens: milliseconds for accepted drafts, seconds for a slow model.
BETWEEN_TOKENS: Final = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.4, 0.6, 1.0, 1.5, 2.5, 5.0)
# Seconds of an answer: from a short one of a quick model to 8192 tokens of a slow one.
WHOLE_ANSWER: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
# Seconds of waiting for memory: usually none, at most a minute.
WAITING: Final = (0.001, 0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0)

OTHER: Final = "other"  # replaces words outside a label's set
BUSY: Final = "busy"  # the failure for lack of a slot
FAILURES: Final = ("invalid", "no_memory", "failed", "internal")


def failure_kind(failure: Exception) -> str:
    """Kind of a failure, one of `FAILURES`."""
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
    """Metrics of one daemon's answers; for any thread."""

    def __init__(
        self,
        registry: CollectorRegistry,
        first_token: str,
        methods: Iterable[str],
        reasons: Sequence[str],
        kinds: Sequence[str],
        sides: Sequence[Side] = get_args(Side),
    ) -> None:
        """Registers the metrics.

        Args:
            first_token: meaning of the first token here.
            methods, reasons, kinds: all words of the labels.
            sides: sides with known draft results.
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
        self._success = counter("request_success", "Answers that ended normally", finished_reason=reasons)
        self._failures = counter("request_failures", "Answers that failed or were refused", kind=kinds)
        self._drafted = counter("spec_decode_num_draft_tokens", "Tokens drafted", side=sides)
        self._accepted = counter("spec_decode_num_accepted_tokens", "Drafts that became tokens", side=sides)
        self._rollbacks = counter("rollbacks", "Drafts that were rejected", side=sides)
        self._branches = counter("branch_tokens", "Drafts beside the chain", side=sides)
        self._used = counter("branches_used", "Rejections after which a branch continued", side=sides)
        self._answers = Counter(
            "dragon_answers", "Answers by method and who aggregates", ["method", "placement"], registry=registry
        )

    def begun(self, seconds: float) -> None:
        """Records the seconds until an answer's first token."""
        self._first_token.observe(seconds)

    def waited(self, seconds: float) -> None:
        """Records an answer's wait for KV memory."""
        self._waited.observe(seconds)

    def read(self, tokens: int) -> None:
        """Records the tokens of an answer's prompt and documents."""
        self._prompt.inc(tokens)

    def generated(self, tokens: int) -> None:
        self._generated.inc(tokens)

    def ended(self, reason: str, seconds: float, method: str, placement: str) -> None:
        self._whole.observe(seconds)
        self._success.labels(reason).inc()
        self._answers.labels(method if method in self._methods else OTHER, placement).inc()

    def failed(self, kind: str) -> None:
        self._failures.labels(kind if kind in self._kinds else OTHER).inc()

    def drafts(self, side: Side, of: SideReport) -> None:
        self._drafted.labels(side).inc(of.drafted)
        self._accepted.labels(side).inc(of.accepted)
        self._rollbacks.labels(side).inc(of.rollbacks)
        self._branches.labels(side).inc(of.branches)
        self._used.labels(side).inc(of.used)


class _Counters:
    """Makes counters with a first value 0: alerts see the first failure."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def __call__(self, name: str, meaning: str, **label: Sequence[str]) -> Counter:
        counter = Counter(f"dragon_{name}", meaning, tuple(label), registry=self._registry)
        for words in label.values():
            for word in words:
                counter.labels(word)
        return counter
