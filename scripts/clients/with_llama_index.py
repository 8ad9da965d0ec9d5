"""LlamaIndex, with its OpenAI-like model and embeddings."""

from __future__ import annotations

from checking import arguments, same
from llama_index.core.llms import ChatMessage
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike

url, question, expected = arguments()
model = OpenAILike(
    model="dragon", api_base=f"{url}/v1", api_key="unused", is_chat_model=True, context_window=2048, temperature=0.0
)

messages = [ChatMessage(role="user", content=question)]
same("chat", model.chat(messages).message.content, expected)
same("streamed chat", "".join(chunk.delta or "" for chunk in model.stream_chat(messages)), expected)
same("complete", model.complete(question).text, expected)
embedding = OpenAILikeEmbedding(model_name="dragon", api_base=f"{url}/v1", api_key="unused")
same("embeddings", len(embedding.get_text_embedding_batch(["a kettle", "a rabbit"])), 2)
