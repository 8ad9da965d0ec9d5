"""Compatibility of a device and a cloud, by the `Hello` of each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from proto.messages import Hello


def refusal(device: Hello, cloud: Hello) -> str | None:
    """The reason that two sides can't answer together, in sentences that say what to do; None when they can.

    The models may differ. The tokenizers may not, since tokens would differ in meaning, nor may the scorers and
    embedding models, since they scale the evidence that weighs one side against the other.
    """
    if device.role != "device" or cloud.role != "cloud":
        return f"A {device.role} talks to a {cloud.role}: connect a device to a cloud."
    differences = []
    if (device.tokenizer, device.vocabulary) != (cloud.tokenizer, cloud.vocabulary):
        differences.append(
            f"the tokenizers differ (device: {device.model}, {device.vocabulary} tokens, {device.tokenizer[:12]}; "
            f"cloud: {cloud.model}, {cloud.vocabulary} tokens, {cloud.tokenizer[:12]})"
        )
    if device.scorer != cloud.scorer:
        differences.append(f"the scorers differ (device: {device.scorer}; cloud: {cloud.scorer})")
    if device.embedder != cloud.embedder:
        differences.append(f"the embedding models differ (device: {device.embedder}; cloud: {cloud.embedder})")
    for side in (device, cloud):
        if not proper_eos(side.eos, side.vocabulary):
            return f"The end-of-sequence ids of the {side.role}'s model must be increasing and below its vocabulary."
    if not differences:
        return None
    return f"The two sides can't answer together: {'; '.join(differences)}. Configure the same on both sides."


def proper_eos(ids: Sequence[int], vocabulary: int) -> bool:
    """Whether `ids` are end-of-sequence ids as a message carries them: increasing and below `vocabulary`."""
    return all(one < other for one, other in pairwise(ids)) and all(id_ < vocabulary for id_ in ids)


def changes(before: Hello, now: Hello) -> list[str]:
    """Names of what differs in a cloud that came back; the rest of an answer then follows another distribution."""
    found = []
    if before.model != now.model:
        found.append("model")
    if before.library != now.library:
        found.append("library")
    return found
