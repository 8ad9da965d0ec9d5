"""The options that commands share, and the request fields they become."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from common.runtime.request import Method, Privacy, Sources
from device.cli.failures import bad_input
from proto.messages import Aggregation, Placement, Sampler

Url = Annotated[
    str | None,
    typer.Option("--url", envvar="DRAGON_URL", help="Address of the device daemon [default: from its settings]"),
]
ApiKey = Annotated[
    str | None,
    typer.Option("--api-key", envvar="DRAGON_API_KEY", help="The daemon's API key [default: from its settings]"),
]
Question = Annotated[str, typer.Argument(help="The question; - reads it from standard input")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead")]


def read_question(given: str) -> str:
    """The question as given, or what standard input holds for `-`. An empty one is refused."""
    text = sys.stdin.read() if given == "-" else given
    if not text.strip():
        raise bad_input("the question is empty")
    return text


def asking(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a request to a command's own.

    The command is called with `fields`, the request body of the options that were given; the daemon's settings decide
    the others.
    """
    own = inspect.signature(command, eval_str=True).parameters
    shared = inspect.signature(_request, eval_str=True).parameters

    @functools.wraps(command)
    def run(**given: Any) -> None:
        values = {name: given.pop(name) for name in shared}
        fields = {name: value for name, value in values.items() if value is not None and value != []}
        command(**given, fields=fields)

    listed = [*shared.values(), *(parameter for name, parameter in own.items() if name != "fields")]
    by_name = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in listed]
    run.__signature__ = inspect.Signature(by_name)  # type: ignore[attr-defined]
    return run


def _request(
    sources: Annotated[Sources | None, typer.Option(help="Whose documents to use")] = None,
    seed: Annotated[int | None, typer.Option(help="Makes the answer reproducible")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 takes the likeliest token")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Longest answer")] = None,
    sampler: Annotated[Sampler | None, typer.Option(help="How tokens are drawn and checked")] = None,
    placement: Annotated[Placement | None, typer.Option(help="Which side aggregates")] = None,
    privacy: Annotated[Privacy | None, typer.Option(help="What may leave this device")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="End the answer before this text (up to 4)")] = None,
    documents: Annotated[int | None, typer.Option(help="Documents retrieved on each side")] = None,
    method: Annotated[Method | None, typer.Option(help="How the two sides come to one answer")] = None,
    aggregation: Annotated[
        Aggregation | None, typer.Option(help="A row per document, or one row with all of them")
    ] = None,
) -> None:
    """The options of a request, each named as its field in the body."""
