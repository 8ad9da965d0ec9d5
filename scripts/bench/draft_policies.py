"""The suite `draft-policies`: tokens per second by who decides how long and how finely to draft, simulated."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

from common.draft_policy.ddqn import ACTIONS, Network
from common.draft_policy.values import MOST_LENGTH, Plan
from common.drawing import REFERENCE, line_style
from scripts.bench import drafting_ahead
from scripts.bench.measuring import Table
from scripts.bench.results import Results
from scripts.train_policy.evaluation import PAPERS_RESOLUTION, Setting, adaptive, fixed, settings, throughput

SEED: Final = 2_000_000
ANSWERS: Final = 10
TOKENS: Final = 500  # of an answer
TOKENS_AHEAD: Final = 20_000
AIM: Final = 0.9  # of the best fixed plan
DRAWN: Final = ("varying", "steady")
NOTE: Final = (
    "The best fixed plan is the best of 16 lengths at 5 resolutions, known only afterwards. `heuristic` has resolution "
    f"{PAPERS_RESOLUTION}, as the paper's fixed plans. Relative to the best fixed plan; less than {AIM:g} is a miss."
)


@dataclass(frozen=True, slots=True)
class Found:
    """Tokens per second in one setting."""

    setting: Setting
    fixed: dict[Plan, float]
    adaptive: dict[str, float]

    @property
    def best(self) -> Plan:
        return max(self.fixed, key=self.fixed.__getitem__)

    @property
    def best_of_paper(self) -> Plan:
        """The best length at the paper's resolution."""
        plans = [plan for plan in self.fixed if plan.resolution == PAPERS_RESOLUTION]
        return max(plans, key=self.fixed.__getitem__)

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
    for setting in settings():
        reached = {name: throughput(policy(), setting, seeds, tokens) for name, policy in policies.items()}
        found.append(Found(setting, fixed(setting, seeds, tokens, plans), reached))
        results.say(f"{setting.network}, {setting.answers}, α {setting.alpha:g}")
    results.samples(
        "tokens per second",
        [
            {
                **asdict(one.setting),
                "fixed": [[plan.length, plan.resolution, value] for plan, value in one.fixed.items()],
                "adaptive": one.adaptive,
            }
            for one in found
        ],
    )
    heads = ["uplink", "answers", "α", "best fixed", "tokens/s", f"best at {PAPERS_RESOLUTION}", *policies]
    rows = [_row(one) for one in found]
    results.table("Tokens per second relative to the best fixed plan", Table(heads, rows), NOTE)
    for name in policies:
        missed = [one for one in found if one.share(name) < AIM]
        results.say(f"{name}: {len(missed)} of {len(found)} settings below {AIM:g} of the best fixed plan")
    drafting_ahead.run(results, 300 if results.short else TOKENS_AHEAD)
    for answers in DRAWN:
        _draw(results, [one for one in found if one.setting.answers == answers], answers)


def _row(one: Found) -> list[str]:
    best, at_papers = one.best, one.best_of_paper
    return [
        one.setting.network,
        one.setting.answers,
        f"{one.setting.alpha:g}",
        f"{best.length} at {best.resolution}",
        f"{one.fixed[best]:.1f}",
        f"{one.fixed[at_papers] / one.fixed[best]:.2f} ({at_papers.length})",
        *(f"{one.share(name):.2f}" for name in one.adaptive),
    ]


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
            for number, (name, value) in enumerate(one.adaptive.items(), start=2):
                style = line_style(number) | {"marker": ""}
                axes.plot([1, MOST_LENGTH], [value, value], label=name, **style)
            axes.axhline(AIM * one.fixed[one.best], **REFERENCE | {"linewidth": 0.6})
            axes.set_title(f"{network}, α {alpha:g}")
            axes.set_ylim(bottom=0)
            axes.set_xlabel("length")
        panels[0].set_ylabel("tokens per second")
        panels[len(networks)].set_ylabel("tokens per second")
