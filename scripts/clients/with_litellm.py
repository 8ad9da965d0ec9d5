"""LiteLLM, through its OpenAI provider."""

from __future__ import annotations

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would fetch a list of prices at its import

import litellm
from checking import expected, question, same, url

litellm.telemetry = False
place = {"model": "openai/dragon", "api_base": f"{url}/v1", "api_key": "unused"}
messages = [{"role": "user", "content": question}]

answer = litellm.completion(messages=messages, **place)
same("chat", answer.choices[0].message.content, expected)
stream = litellm.completion(messages=messages, stream=True, stream_options={"include_usage": True}, **place)
same("streamed chat", "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices), expected)
same("response", litellm.responses(input=question, **place).output_text, expected)
same("embeddings", len(litellm.embedding(input=["a kettle", "a rabbit"], encoding_format="float", **place).data), 2)
