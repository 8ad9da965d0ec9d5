"""Instructor: results of a type, by calls of functions and by formats, in chats and in responses."""

from __future__ import annotations

from typing import Literal

import instructor
from checking import question, same, url
from openai import OpenAI
from pydantic import BaseModel


class Place(BaseModel):
    kind: Literal["house", "park"]
    weekday: Literal["Monday", "Tuesday"]


messages = [{"role": "user", "content": question}]
for mode in ("TOOLS", "TOOLS_STRICT", "JSON_SCHEMA", "RESPONSES_TOOLS"):
    client = instructor.from_openai(OpenAI(base_url=f"{url}/v1", api_key="unused"), mode=instructor.Mode[mode])
    place = client.create(model="dragon", messages=messages, response_model=Place, max_retries=0)
    same(mode, isinstance(place, Place), True)
client = instructor.from_openai(OpenAI(base_url=f"{url}/v1", api_key="unused"))
parts = list(client.create_partial(model="dragon", messages=messages, response_model=Place))
same("streamed in parts", parts[-1].model_dump().keys(), Place.model_fields.keys())
