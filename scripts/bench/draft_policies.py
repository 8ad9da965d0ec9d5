"""The suite `draft-policies`: tokens per second by who decides how long and how finely to draft, simulated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from statistics import harmonic_mean
from typing import Final

from common.draft_policy.acceptance import ConfidenceAcceptance
from common.draft_policy.ddqn import ACTIONS, DoubleQ, Network
from common.draft_policy.goodput import Goodput
from common.draft_policy.lattice_bits import fixed_index_bits
from common.draft_policy.rules import Fixed, Heuristic
from common.draft_policy.sizes import TokenSizes
from common.draft_policy.values import MOST_LENGTH, RESOLUTIONS, DraftPolicy, Plan
from common.figures import REFERENCE, line_style
from scripts.bench import drafting_ahead
from scripts.bench.measuring import Table, grouped
from scripts.bench.results import Results
from scripts.simulation.models import HIGH, LOW, ConstantRate, Steady, TwoStateRate, UplinkModel, Varying
from scripts.simulation.rounds import RoundScenario
from scripts.train_policy.environment import VOCABULARY, recorded, scenario
from tests.scripts.simulation.whole_answers import simulate_rounds

PAPERS_RESOLUTION: Final = 64
NETWORKS: Final[Mapping[str, UplinkModel]] = {
    "40 kb/s": ConstantRate(LOW),
    "400 kb/s": ConstantRate(HIGH),
    "Markov, 5 s": TwoStateRate(0.02, 0.02),
    "Markov, 1 s": TwoStateRate(0.1, 0.1),
    "Markov, 0.2 s": TwoStateRate(0.5, 0.5),
}  # seconds that a state lasts on average
ALPHAS: Final = (0.7, 0.9)
MODELLED: Final[Mapping[str, type[Steady] | type[Varying]]] = {"steady": Steady, "varying": Varying}
# What a drafter knows before its first proposal: the index, and the token among about eight.
TOKEN_BYTES: Final[Mapping[int | None, float]] = {
    resolution: (fixed_index_bits(resolution, VOCABULARY) + 3) / 8 for resolution in RESOLUTIONS
}
SEED: Final = 2_000_000
ANSWERS: Final = 10
TOKENS: Final = 500  # of an answer
FIRST_ANSWERS: Final = 60  # whose policies know nothing yet
FIRST_TOKENS: Final = 60
LEARNING: Final = ("goodput", "by confidence")
TOKENS_AHEAD: Final = 20_000
AIM: Final = 0.9  # of the best fixed plan
DRAWN: Final = ("varying", "steady")
NOT_DRAWN: Final = "heuristic at 16"  # six lines are enough
NOTE: Final = (
    "The best fixed plan is the best of 16 lengths at 5 resolutions, known only afterwards. "
    f"Relative to it; less than {AIM:g} is a miss."
)
RECORDED_NOTE: Final = f"{NOTE} Answers that no policy was trained on; α: of distributions that are not rounded."


@dataclass(frozen=True, slots=True)
class Setting:
    """One network and kind of answers: a model of them and its mean acceptance, or a drafter that was recorded."""

    network: str
    answers: str
    alpha: float

    def scenario(self, tokens: int) -> RoundScenario:
        """An answer of it; of recorded ones, one that was held out of training."""
        modelled = MODELLED.get(self.answers)
        positions = recorded(held_out=True)[self.answers] if modelled is None else modelled(self.alpha)
        return scenario(positions, NETWORKS[self.network], tokens)


def settings() -> list[Setting]:
    """Modelled answers on all networks."""
    return [Setting(*one) for one in product(NETWORKS, MODELLED, ALPHAS)]


def recorded_settings() -> list[Setting]:
    """Recorded answers on all networks."""
    found = recorded(held_out=True)
    return [Setting(network, name, round(found[name].alpha, 2)) for network, name in product(NETWORKS, found)]


def throughput(policy: DraftPolicy, setting: Setting, seeds: Sequence[int], tokens: int) -> float:
    """Tokens per second of answers one after the other: the policy and the estimates go on learning."""
    one = setting.scenario(tokens)
    estimates = one.estimates()
    answers = [simulate_rounds(one, policy, seed, estimates) for seed in seeds]
    return sum(answer.tokens for answer in answers) / sum(answer.seconds for answer in answers)


def fixed(setting: Setting, seeds: Sequence[int], tokens: int, plans: Sequence[Plan] = ACTIONS) -> dict[Plan, float]:
    """Tokens per second of every fixed plan."""
    return {plan: throughput(Fixed(plan.length, plan.resolution), setting, seeds, tokens) for plan in plans}


def adaptive(network: Network) -> Mapping[str, Callable[[], DraftPolicy]]:
    """The policies that adapt, by name. The heuristic does not choose a resolution: the paper's, and the coarsest."""
    return {
        f"heuristic at {PAPERS_RESOLUTION}": lambda: Heuristic(resolution=PAPERS_RESOLUTION),
        f"heuristic at {RESOLUTIONS[0]}": lambda: Heuristic(resolution=RESOLUTIONS[0]),
        "goodput": lambda: Goodput(TokenSizes(TOKEN_BYTES)),
        "by confidence": lambda: Goodput(TokenSizes(TOKEN_BYTES), confidence=ConfidenceAcceptance()),
        "DDQN": lambda: DoubleQ(network),
    }


@dataclass(frozen=True, slots=True)
class Found:
    """Tokens per second in one setting."""

    setting: Setting
    fixed: dict[Plan, float]
    adaptive: dict[str, float]

    @property
    def best(self) -> Plan:
        return max(self.fixed, key=self.fixed.__getitem__)

    def share(self, name: str) -> float:
        """A policy's throughput over the best fixed plan's."""
        return self.adaptive[name] / self.fixed[self.best]


def run(results: Results) -> None:
    """Simulate every policy on every network; a table of ratios, and the curves of fixed lengths."""
    seeds = range(SEED, SEED + (1 if results.short else ANSWERS))
    tokens = 60 if results.short else TOKENS
    plans = [
        plan for plan in ACTIONS if not results.short or (plan.length in (1, 3, 6) and plan.resolution in (16, 64))
    ]
    policies = adaptive(Network.load())
    found = []
    for setting in (*settings(), *recorded_settings()):
        reached = {name: throughput(policy(), setting, seeds, tokens) for name, policy in policies.items()}
        found.append(Found(setting, fixed(setting, seeds, tokens, plans), reached))
        results.say(f"{setting.network}, {setting.answers}, α {setting.alpha:g}")
    results.samples(
        "tokens per second",
        [
            {
                "setting": one.setting,
                "fixed": [[plan.length, plan.resolution, value] for plan, value in one.fixed.items()],
                "adaptive": one.adaptive,
            }
            for one in found
        ],
    )
    modelled = [one for one in found if one.setting.answers in MODELLED]
    recorded = [one for one in found if one.setting.answers not in MODELLED]
    shown = show(modelled, list(policies), "α", lambda setting: f"{setting.alpha:g}")
    results.table("Tokens per second relative to the best fixed plan", shown, f"Steady / varying answers. {NOTE}")
    shown = show(recorded, list(policies), "drafter, α", lambda setting: f"{setting.answers}, {setting.alpha:g}")
    results.table("Recorded answers: tokens per second relative to the best fixed plan", shown, RECORDED_NOTE)
    for name in policies:
        missed = [one for one in found if one.share(name) < AIM]
        results.say(f"{name}: {len(missed)} of {len(found)} settings below {AIM:g} of the best fixed plan")
    _first_answers(results, plans)
    drafting_ahead.run(results, 300 if results.short else TOKENS_AHEAD)
    for answers in DRAWN:
        _draw(results, [one for one in found if one.setting.answers == answers], answers)


def show(found: Sequence[Found], policies: Sequence[str], head: str, of: Callable[[Setting], str]) -> Table:
    """A row for each uplink and what `of` tells of its answers, under `head`: kinds of answers beside each other."""
    columns: dict[str, Callable[[Found], str]] = {
        "best fixed": lambda one: f"{one.best.length} at {one.best.resolution}",
        "its tokens/s": lambda one: f"{one.fixed[one.best]:.1f}",
        **{name: partial(_share, name) for name in policies},
    }
    rows = grouped(found, lambda one: (one.setting.network, of(one.setting)))
    return Table.crossed(
        ["uplink", head], rows, columns, lambda those, told: " / ".join(map(told, sorted(those, key=_kind)))
    )


def _kind(one: Found) -> str:
    return one.setting.answers


def _share(name: str, one: Found) -> str:
    return f"{one.share(name):.2f}"


def _first_answers(results: Results, plans: Sequence[Plan]) -> None:
    """Short answers of policies that begin each knowing nothing: neither the uplink nor the acceptance."""
    seeds = range(SEED, SEED + (1 if results.short else FIRST_ANSWERS))
    coarse = [plan for plan in plans if plan.resolution == RESOLUTIONS[0]]
    policies = {name: one for name, one in adaptive(Network.load()).items() if name in LEARNING}
    rows = []
    for setting in settings():
        best = max(fixed(setting, seeds, FIRST_TOKENS, coarse).values())
        shares = []
        for policy in policies.values():
            speeds = [throughput(policy(), setting, [seed], FIRST_TOKENS) for seed in seeds]
            shares.append(f"{harmonic_mean(speeds) / best:.2f}")
        rows.append([setting.network, setting.answers, f"{setting.alpha:g}", *shares])
    title = f"First answers of {FIRST_TOKENS} tokens, relative to the best fixed length at {RESOLUTIONS[0]}"
    results.table(title, Table(["uplink", "answers", "α", *policies], rows))


def _draw(results: Results, found: list[Found], answers: str) -> None:
    alphas = sorted({one.setting.alpha for one in found})
    networks = list(dict.fromkeys(one.setting.network for one in found))
    title = f"Tokens per second by length of drafts, answers of {answers} confidence"
    with results.figure(answers, columns=len(networks), rows=len(alphas), title=title) as panels:
        for axes, (alpha, network) in zip(panels, [(a, n) for a in alphas for n in networks], strict=True):
            (one,) = [one for one in found if one.setting.alpha == alpha and one.setting.network == network]
            for number, resolution in enumerate((one.best.resolution, PAPERS_RESOLUTION)):
                points = {plan.length: value for plan, value in one.fixed.items() if plan.resolution == resolution}
                label = "fixed, best resolution" if number == 0 else f"fixed, resolution {PAPERS_RESOLUTION}"
                axes.plot(list(points), list(points.values()), label=label, **line_style(number))
            drawn = {name: value for name, value in one.adaptive.items() if name != NOT_DRAWN}
            for number, (name, value) in enumerate(drawn.items(), start=2):
                style = line_style(number) | {"marker": ""}
                axes.plot([1, MOST_LENGTH], [value, value], label=name, **style)
            axes.axhline(
                AIM * one.fixed[one.best], label=f"{AIM:g} of the best fixed", **REFERENCE | {"linewidth": 0.6}
            )
            axes.set_title(f"{network}, α {alpha:g}")
            axes.set_ylim(bottom=0)
            axes.set_xlabel("length")
        panels[0].set_ylabel("tokens per second")
        panels[len(networks)].set_ylabel("tokens per second")
