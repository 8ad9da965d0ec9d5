"""The measurements of the suite `edgellm`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from common.configuration.settings import EMBEDDED_DRAFT, EMBEDDED_MODEL
from common.methods.trees.history import TreeHistory
from scripts.bench.edgellm.device import Answer, Known, device
from scripts.bench.edgellm.plan import COUNTED, DRAFT_ALONE, MIB, NATURAL, TEMPERATURES, WAYS, Sizes, Task
from scripts.bench.results import Results
from scripts.bench.workload import Texts

CANDIDATES = 4  # questions that are tried for each one that is asked
DRAFT_SECONDS, PASS_SECONDS = 0.004, 1.7  # of a step and a pass, for counts where nothing is streamed

Found = dict[tuple[str, str], list[Answer]]  # by way and task


@dataclass(frozen=True, slots=True)
class Counted:
    """Answers of one rule at one temperature, in memory."""

    name: str
    temperature: float
    tokens: int
    passes: int
    nodes: int

    @property
    def per_pass(self) -> float:
        """Tokens that a pass decides."""
        return self.tokens / self.passes


@dataclass
class Bench:
    """The setting of the measurements: folders, sizes, the model and the questions."""

    results: Results
    sizes: Sizes
    folder: Path
    target: Path = field(init=False)
    texts: Texts = field(init=False)

    def __post_init__(self) -> None:
        self.target = self.folder / "target"
        texts = Texts.draw_joint(CANDIDATES * self.sizes.questions)
        self.texts = Texts(texts.documents, self._long(texts))

    def _long(self, texts: Texts) -> tuple[str, ...]:
        """The first questions whose answers have as many tokens as they should, and if these are too few, the others
        with the longest answers.
        """
        task, sizes = self.sizes.tasks[NATURAL], self.sizes
        with device(self.folder / "choosing", texts, **IN_MEMORY) as running:
            lengths = [len(running.ask(question, task).tokens) for question in texts.questions]
        order = sorted(range(len(lengths)), key=lambda place: -min(lengths[place], sizes.natural))
        return tuple(texts.questions[place] for place in order[: sizes.questions])

    def streamed(self, budget: int, **changes: Any) -> dict[str, Any]:
        """Settings of a device with the large target."""
        return {
            "local_target": str(self.target),
            "memory_budget": budget,
            "emulate_read_mbps": self.sizes.speed,
        } | changes

    def ways(self) -> Found:
        """All ways, and the draft model alone."""
        found: Found = {}
        for read_ahead in (False, True):
            settings = self.streamed(self.sizes.budget, read_ahead=read_ahead)
            with device(self.folder / "device", self.texts, **settings) as running:
                for way in WAYS:
                    if way.read_ahead != read_ahead:
                        continue
                    for name, questions in way.questions.items():
                        self.results.say(f"{way.name}, {name}")
                        asked = self.texts.questions[:questions]
                        found[way.name, name] = [
                            running.ask(one, self.sizes.tasks[name], **way.fields) for one in asked
                        ]
        self.results.say(DRAFT_ALONE)
        with device(self.folder / "device", self.texts) as running:
            for name in (NATURAL, "64"):
                alone = [running.ask(one, self.sizes.tasks[name], method="speculative") for one in self.texts.questions]
                found[DRAFT_ALONE, name] = alone
        check(found)
        return found

    def firsts(self) -> list[tuple[Answer, Answer]]:
        """Answers to questions about documents that were not read before, each with the same one asked for again."""
        self.results.say("documents that were not read before")
        settings, task = self.streamed(self.sizes.budget), self.sizes.tasks[NATURAL]
        with device(self.folder / "device", self.texts, **settings) as running:
            others = self.texts.questions[1:] or self.texts.questions  # the first one's was read when all was warmed
            return [(running.ask(one, task), running.ask(one, task)) for one in others]

    def budgets(self) -> dict[int, tuple[int, list[Answer]]]:
        """Resident layers and answers by memory budget."""
        found = {}
        for budget in self.sizes.budgets:
            self.results.say(f"{budget / MIB:.0f} MiB")
            with device(self.folder / "device", self.texts, **self.streamed(budget)) as running:
                resident = running.resident
                answers = [running.ask(one, self.sizes.tasks[NATURAL]) for one in self.texts.questions]
                found[budget] = self.sizes.layers if resident is None else resident, answers
        return found

    def drafters(self) -> dict[str, list[Answer]]:
        """Answers by the model that drafts, within the budget and what the largest of them takes more."""
        random = random_model(self.folder / "random")
        models = {"random weights": random, "bundled": EMBEDDED_DRAFT, "target's own": EMBEDDED_MODEL}
        found = {}
        for name, model in models.items():
            self.results.say(f"drafts by {name}")
            settings = self.streamed(self.sizes.budget + 16 * MIB, model=str(model), draft_model=str(model))
            questions = self.texts.questions[: 1 if model == random else None]
            with device(self.folder / "device", self.texts, **settings) as running:
                found[name] = [running.ask(one, self.sizes.tasks[NATURAL]) for one in questions]
        return found

    def counts(self) -> list[Counted]:
        """Tokens per pass by growth and temperature, in memory: they are the same however long a pass takes, if the
        rule that looks at times is told that it takes long.
        """
        questions, length = self.sizes.counted
        asked = Texts.draw_joint(questions).questions
        found = []
        with device(self.folder / "counting", self.texts, **IN_MEMORY) as running:
            TreeHistory.of(running.side).times = Known(DRAFT_SECONDS, PASS_SECONDS)
            for name, fields in COUNTED:
                for temperature in TEMPERATURES:
                    self.results.say(f"{name}, temperature {temperature}")
                    answers = [running.ask(one, Task(length), temperature=temperature, **fields) for one in asked]
                    tokens, passes = sum(len(one.tokens) for one in answers), sum(one.passes for one in answers)
                    nodes = sum(one.nodes for one in answers)
                    found.append(Counted(name, temperature, tokens, round(passes), round(nodes)))
        return found


IN_MEMORY = {"model": str(EMBEDDED_MODEL)}


def check(found: Found) -> None:
    """Check that tokens are the target's, whatever drafts. Raises `RuntimeError`."""
    longest: dict[tuple[bool, int], list[int]] = {}
    for (name, task), answers in sorted(found.items(), key=lambda each: -len(each[1][0].tokens)):
        for question, answer in enumerate(answers):
            if name == DRAFT_ALONE:
                continue
            known = longest.setdefault((task == NATURAL, question), answer.tokens)
            if answer.tokens != known[: len(answer.tokens)]:
                raise RuntimeError(f"{name}, {task}: other tokens than the target's")


def random_model(folder: Path) -> Path:
    """The bundled draft model with random weights: it never agrees."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(3)
    tensors = load_file(EMBEDDED_DRAFT / "model.safetensors")
    made = {name: torch.randn(each.shape, generator=generator) * 0.05 for name, each in tensors.items()}
    save_file(made, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text((EMBEDDED_DRAFT / "config.json").read_text())
    return folder


def tokens_per_pass(answers: Sequence[Answer]) -> float:
    """Of all answers together."""
    return sum(len(one.tokens) for one in answers) / sum(one.passes for one in answers)
