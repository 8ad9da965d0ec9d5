"""Beginning of both models' parts in an answer by trees."""

from __future__ import annotations

from common.methods.coupled.scheme import Racing
from common.methods.edgellm.drawing import Finishers
from common.methods.edgellm.driver import TreeDriver
from common.runtime.model_runtime import ModelRuntime
from common.runtime.reading import PromptRows
from proto.messages import Open


def verifier_reserve(opening: Open, nodes: int) -> int:
    """Tokens behind the query of the verifier's rows: the answer, and a tree of so many `nodes`."""
    return opening.max_tokens + 1 + nodes


def drafter_reserve(opening: Open, nodes: int) -> int:
    """Tokens behind the query of the draft model's rows, which may hold a tree and the one that is to follow it."""
    return verifier_reserve(opening, nodes) + nodes


def begin_trees(
    driver: TreeDriver, target: ModelRuntime, drafter: ModelRuntime | None, opening: Open, found: PromptRows, nodes: int
) -> None:
    """Have the target verify trees of up to `nodes` nodes by the race, and the drafter, if any, run the same race, both
    from the rows in `found`. Raises `RequestError` for processors that can't be used.
    """
    seed, temperature = opening.seed, opening.temperature
    reserve = verifier_reserve(opening, nodes)
    target.read_trees(driver.verifier, opening, Racing(seed, temperature), found, reserve, driver.end)
    if drafter is not None:
        reserve, finishers = drafter_reserve(opening, nodes), Finishers(seed, temperature)
        drafter.read_trees(driver.drafter, opening, finishers, found, reserve, driver.end)
