"""Settings of the latency suites: methods, decode-time floors and added latencies."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from scripts.bench.asking import Mode, make_mode

DEVICE_ONLY = make_mode("device only", sources="device")
CLOUD_ONLY = make_mode("cloud only", sources="cloud")
TOKEN_WISE = make_mode("DRDG/TW", exact=True, method="token-wise")
PAPER_DEVICE = make_mode("paper/device", sampler="paper", placement="device")
PAPER_GREEDY = make_mode("paper/greedy", sampler="paper", placement="greedy")
RACE_DEVICE = make_mode("race/device", exact=True, placement="device")
RACE_DEVICE_CHAIN = make_mode("race/device, no branches", exact=True, placement="device", branches=1)
RACE_MIRRORED_CHAIN = make_mode("race/mirrored, no branches", exact=True, placement="mirrored", branches=1)
RACE_GREEDY = make_mode("race/greedy", exact=True, placement="greedy")
RACE_MIRRORED = make_mode("race/mirrored", exact=True, placement="mirrored")

MODES = (
    DEVICE_ONLY,
    CLOUD_ONLY,
    make_mode("DRCG/text", method="fetch-text"),
    make_mode("DRCG/KV", method="fetch-kv"),
    TOKEN_WISE,
    make_mode("DRDG/SW", method="sequence-wise"),
    PAPER_DEVICE,
    make_mode("paper/cloud", sampler="paper", placement="cloud"),
    PAPER_GREEDY,
    make_mode("paper/random", sampler="paper", placement="random"),
    RACE_DEVICE,
    RACE_GREEDY,
    RACE_MIRRORED,
)


# Emulated hardware is slower in the proportions of the embedded model: what 1,000 tokens of context add to a step of 4
# rows, and what a token of a prompt takes, or of a branch in one row, in steps without context.
CONTEXT_STEPS = 0.7
PROMPT_STEPS = 0.02


def emulated(milliseconds: float) -> dict[str, float]:
    """Settings of a daemon whose steps without context take so long; 0: as long as they do here."""
    if milliseconds == 0:
        return {}
    return {
        "emulate_decode_ms": milliseconds,
        "emulate_context_us": milliseconds * CONTEXT_STEPS,
        "emulate_prompt_ms": milliseconds * PROMPT_STEPS,
    }


@dataclass(frozen=True, slots=True)
class Floors:
    """Emulated hardware: a decode step without context takes at least so many milliseconds."""

    device: float
    cloud: float

    def limit(self, context: float) -> float:
        """Milliseconds per token that a network without latency would give, at `context` tokens per row."""
        return max(self.device, self.cloud) * (1.0 + CONTEXT_STEPS * context / 1e3)

    @property
    def name(self) -> str:
        return f"{self.device:g}/{self.cloud:g}"


@dataclass(frozen=True, slots=True)
class Leg:
    """One added latency: how many of the questions are asked there, at which temperatures."""

    rtt: float  # milliseconds, added by the link
    questions: int
    temperatures: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole run. The link's latency swings by `jitter` of itself, as in §7.2."""

    floors: tuple[Floors, ...] = (Floors(150, 50), Floors(50, 50), Floors(20, 10))
    legs: tuple[Leg, ...] = (
        Leg(300, 20, (0.3, 1.0)),
        Leg(200, 8, (0.3,)),
        Leg(100, 8, (0.3,)),
        Leg(0, 8, (0.3,)),
    )
    modes: tuple[Mode, ...] = field(default=MODES)
    jitter: float = 0.2
    own: float = 0.003  # seconds of round trip that loopback and daemons have without any link
    max_tokens: int = 48
    seed: int = 9
    entropy: float | None = None  # nats of a synthetic model whose answers never end; None: the embedded model
    slow: tuple[Mode, ...] = ()  # asked the first few questions only: their answers take minutes, and are all alike

    @property
    def questions(self) -> int:
        return max(leg.questions for leg in self.legs)

    @property
    def farthest(self) -> float:
        return max(leg.rtt for leg in self.legs)

    def seed_of(self, question: int) -> int:
        """Seed of a question: one of its own where the model's answers depend on nothing else."""
        return self.seed if self.entropy is None else self.seed + question


ANY = 5.0  # seconds: short runs measure nothing, and go on beside any other work
SHORT = Plan(
    floors=(Floors(15, 10),),
    legs=(Leg(60, 1, (0.3,)), Leg(0, 1, (0.3,))),
    max_tokens=8,
    own=ANY,
)

# Answers as long as asked for, of models that hesitate: one plan for each entropy.
ENTROPIES = (1.0, 2.0, 3.0)
SLOW_QUESTIONS = 3
LONG = Plan(
    floors=(Floors(50, 50), Floors(20, 10)),
    legs=(Leg(300, 10, (1.0,)),),
    modes=(
        DEVICE_ONLY,
        TOKEN_WISE,
        PAPER_DEVICE,
        PAPER_GREEDY,
        RACE_DEVICE,
        RACE_GREEDY,
        RACE_MIRRORED,
        RACE_DEVICE_CHAIN,
        RACE_MIRRORED_CHAIN,
    ),
    max_tokens=200,
    slow=(TOKEN_WISE, PAPER_DEVICE, PAPER_GREEDY),
)
SHORT_LONG = replace(
    SHORT,
    legs=(Leg(60, 1, (1.0,)),),
    modes=(DEVICE_ONLY, TOKEN_WISE, RACE_DEVICE, RACE_DEVICE_CHAIN),
    max_tokens=20,
)
