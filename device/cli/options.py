"""The options that commands share, and the request fields they become."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from common.runtime.request import Method, Privacy, Sources
from proto.messages import Aggregation, Placement, Sampler

Url = Annotated[
    str | None,
    typer.Option("--url", envvar="DRAGON_URL", help="Address of the device daemon [default: from its settings]"),
]
ApiKey = Annotated[
    str | None,
    typer.Option("--api-key", envvar="DRAGON_API_KEY", help="The daemon's API key [default: from its settings]"),
]
SourcesOption = Annotated[Sources | None, typer.Option("--sources", help="Whose documents to use")]
Seed = Annotated[int | None, typer.Option("--seed", help="Makes the answer reproducible")]
Temperature = Annotated[float | None, typer.Option("--temperature", help="0 takes the likeliest token")]
MaxTokens = Annotated[int | None, typer.Option("--max-tokens", help="Longest answer")]
SamplerOption = Annotated[Sampler | None, typer.Option("--sampler", help="How tokens are drawn and checked")]
PlacementOption = Annotated[Placement | None, typer.Option("--placement", help="Which side aggregates")]
PrivacyOption = Annotated[Privacy | None, typer.Option("--privacy", help="What may leave this device")]
Stop = Annotated[list[str] | None, typer.Option("--stop", help="End the answer before this text (up to 4)")]
Documents = Annotated[int | None, typer.Option("--documents", help="Documents retrieved on each side")]
MethodOption = Annotated[Method | None, typer.Option("--method", help="How the two sides come to one answer")]
AggregationOption = Annotated[
    Aggregation | None, typer.Option("--aggregation", help="A row per document, or one row with all of them")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead")]


def request_fields(**given: Any) -> dict[str, Any]:
    """The request body of the options that were given; the daemon's settings decide the others."""
    return {name: value for name, value in given.items() if value is not None and value != []}
