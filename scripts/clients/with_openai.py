"""The official client: chat, completions, responses, embeddings; whole, streamed and asynchronous."""

from __future__ import annotations

import asyncio
import json

from checking import expected, question, same, url
from openai import AsyncOpenAI, OpenAI

client = OpenAI(base_url=f"{url}/v1", api_key="unused")
model = client.models.list().data[0].id

answer = client.chat.completions.create(model=model, messages=[{"role": "user", "content": question}])
same("chat", answer.choices[0].message.content, expected)
stream = client.chat.completions.create(model=model, messages=[{"role": "user", "content": question}], stream=True)
same("streamed chat", "".join(chunk.choices[0].delta.content or "" for chunk in stream), expected)
prompt = f"\nQuestion: {question}\nAnswer:"
same("completion", client.completions.create(model=model, prompt=prompt).choices[0].text.strip(), expected)
same("response", client.responses.create(model=model, input=question).output_text, expected)
with client.responses.stream(model=model, input=question) as events:
    same("streamed response", events.get_final_response().output_text, expected)
hour: dict[str, object] = {"type": "object", "properties": {"hour": {"enum": [11, 12]}}, "required": ["hour"]}
called = client.chat.completions.create(
    model=model,
    messages=[{"role": "user", "content": question}],
    tools=[{"type": "function", "function": {"name": "opening", "parameters": hour}}],
    tool_choice="required",
)
calls = called.choices[0].message.tool_calls or ()
told = [json.loads(call.function.arguments) for call in calls if call.type == "function"]
same("call of a tool", told in ([{"hour": 11}], [{"hour": 12}]), True)
vectors = client.embeddings.create(model=model, input=["a kettle", "a rabbit"])
same("embeddings", len(vectors.data), 2)


async def ask() -> None:
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="unused") as asynchronous:
        messages = asynchronous.chat.completions
        whole = await messages.create(model=model, messages=[{"role": "user", "content": question}])
        same("asynchronous chat", whole.choices[0].message.content, expected)
        chunks = await messages.create(model=model, messages=[{"role": "user", "content": question}], stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])
        same("asynchronous streamed chat", text, expected)


asyncio.run(ask())
