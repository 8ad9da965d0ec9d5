"""Requests that Open WebUI sends to an OpenAI connection: its check of the address, its list of models, its chats."""

from __future__ import annotations

import json
from typing import Any

import httpx
from checking import question, same, url

# A base address with `/v1`; the headers are those with "forward user information" on.
headers = {"Authorization": "Bearer unused", "X-OpenWebUI-User-Name": "Ada", "X-OpenWebUI-Chat-Id": "1"}
with httpx.Client(base_url=f"{url}/v1", headers=headers, timeout=60.0, trust_env=False) as http:
    models = http.get("/models").raise_for_status().json()
    same("models", models["data"][0]["id"], "dragon")
    history = [
        {"role": "system", "content": "User Context:\n\nBe brief."},
        {"role": "user", "content": [{"type": "text", "text": question}]},
    ]
    chat: dict[str, Any] = {"model": "dragon", "messages": history, "stream": True}
    chat |= {"stream_options": {"include_usage": True}, "metadata": {"chat_id": "1"}, "tools": [], "top_k": 40}
    text = ""
    with http.stream("POST", "/chat/completions", json=chat) as response:
        response.raise_for_status()
        for line in response.iter_lines():
            if line.startswith("data: {"):
                for choice in json.loads(line.removeprefix("data: "))["choices"]:
                    text += choice["delta"].get("content") or ""
    same("streamed chat", bool(text.strip()), True)
    # Titles, tags and follow-up questions are asked for without streaming.
    task = {"model": "dragon", "messages": [{"role": "user", "content": f"### Task: a title\n{question}"}]}
    title = http.post("/chat/completions", json=task | {"stream": False, "max_completion_tokens": 1000})
    same("task", title.raise_for_status().json()["choices"][0]["finish_reason"] in ("stop", "length"), True)
    vectors = http.post("/embeddings", json={"model": "dragon", "input": ["a kettle", "a rabbit"]})
    same("embeddings", len(vectors.raise_for_status().json()["data"]), 2)
