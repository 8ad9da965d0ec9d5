"""Beginning of both models' parts in an answer by trees."""

from __future__ import annotations

from dataclasses import replace

from common.answer.report import Record
from common.daemon.model_runtime import ModelRuntime, claimed
from common.daemon.prompt_rows import PromptRows
from common.methods.trees.driver import TreeDriver
from common.methods.trees.edgellm.drawing import Finishers
from common.sampling.racing import Racing
from common.sampling.warping import Warp
from proto.messages import Open


def verifier_reserve(opening: Open, nodes: int) -> int:
    """Tokens behind the query of the verifier's rows: the answer, and a tree of so many `nodes`."""
    return opening.max_tokens + 1 + nodes


def drafter_reserve(opening: Open, nodes: int) -> int:
    """Tokens behind the query of the draft model's rows, which may hold a tree and the one that is to follow it."""
    return verifier_reserve(opening, nodes) + nodes


def begin_trees(
    driver: TreeDriver,
    target: ModelRuntime,
    drafter: ModelRuntime | None,
    opening: Open,
    found: PromptRows,
    nodes: int,
    record: Record,
    cut: Warp | None = None,
) -> None:
    """Have the target verify trees of up to `nodes` nodes by the race, and the drafter, if any, run the same race, both
    from the rows in `found` and among the tokens that `cut` keeps (None: those of the processors). They get their
    memory together: either would wait for the other for ever.

    Raises `RequestError` for processors that can't be used, and for rows for which there is never room.
    """
    seed, temperature, waited = opening.seed, opening.temperature, record.waited
    needs = [target.need(found, verifier_reserve(opening, nodes))]
    if drafter is not None:
        needs.append(drafter.need(found, drafter_reserve(opening, nodes)))
    claim = claimed(needs)
    try:
        rows, reserve = replace(found, part=claim.parts[0]), verifier_reserve(opening, nodes)
        racing = Racing(seed, temperature)
        target.read_trees(driver.verifier, opening, racing, rows, reserve, driver.end, cut, waited)
        if drafter is not None:
            rows, reserve = replace(found, part=claim.parts[1]), drafter_reserve(opening, nodes)
            finishers = Finishers(seed, temperature)
            drafter.read_trees(driver.drafter, opening, finishers, rows, reserve, driver.end, cut, waited)
    except BaseException:
        claim.withdraw()
        raise
