"""Pydantic AI: text, and results and tools by calls of functions."""

from __future__ import annotations

from typing import Literal

from checking import expected, question, same, url
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

model = OpenAIChatModel("dragon", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="unused"))


class Place(BaseModel):
    kind: Literal["house", "park"]
    weekday: Literal["Monday", "Tuesday"]


same("text", Agent(model).run_sync(question).output, expected)
same("result", type(Agent(model, output_type=Place).run_sync(question).output), Place)


def opening(day: Literal["today", "tomorrow"]) -> str:
    """Tells when a place opens."""
    return f"at noon, {day}"


same("text beside tools", bool(Agent(model, tools=[opening]).run_sync(question).output), True)
