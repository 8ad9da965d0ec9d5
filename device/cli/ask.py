"""`dragon ask`: one question, one answer."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from device.cli import options
from device.cli.failures import bad_input


def ask(
    question: Annotated[str, typer.Argument(help="The question; - reads it from standard input")],
    sources: options.SourcesOption = None,
    seed: options.Seed = None,
    temperature: options.Temperature = None,
    max_tokens: options.MaxTokens = None,
    sampler: options.SamplerOption = None,
    placement: options.PlacementOption = None,
    privacy: options.PrivacyOption = None,
    stop: options.Stop = None,
    documents: options.Documents = None,
    method: options.MethodOption = None,
    aggregation: options.AggregationOption = None,
    report: Annotated[bool, typer.Option("--report", help="Print the whole report, with who said what")] = False,
    as_json: options.AsJson = False,
    url: options.Url = None,
    api_key: options.ApiKey = None,
) -> None:
    """Answer one question.

    The answer goes to stdout as it comes, one line about it to stderr.
    """
    from device.cli.answers import conversation, stream_answer, to_stderr
    from device.cli.connection import find_daemon
    from device.cli.render import full_report, summary_line

    text = sys.stdin.read() if question == "-" else question
    if not text.strip():
        raise bad_input("the question is empty")
    body = options.request_fields(
        messages=conversation([], text),
        sources=sources,
        seed=seed,
        temperature=temperature,
        max_tokens=max_tokens,
        sampler=sampler,
        placement=placement,
        privacy=privacy,
        stop=stop,
        documents=documents,
        method=method,
        aggregation=aggregation,
    )
    with find_daemon(url, api_key) as daemon:
        printed = stream_answer(daemon, body, None if as_json else sys.stdout)
    if as_json:
        value = {
            "answer": printed.text,
            "finish_reason": printed.reason,
            "usage": printed.usage,
            "dragon": printed.report,
        }
        print(json.dumps(value, ensure_ascii=False))
    else:
        to_stderr(full_report(printed.report) if report else summary_line(printed.report))
