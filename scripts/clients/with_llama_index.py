"""LlamaIndex, with its OpenAI-like model and embeddings, and a call of a tool."""

from __future__ import annotations

from checking import expected, question, same, url
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike

model = OpenAILike(
    model="dragon", api_base=f"{url}/v1", api_key="unused", is_chat_model=True, context_window=2048, temperature=0.0
)

messages = [ChatMessage(role="user", content=question)]
same("chat", model.chat(messages).message.content, expected)
same("streamed chat", "".join(chunk.delta or "" for chunk in model.stream_chat(messages)), expected)
same("complete", model.complete(question).text, expected)
embedding = OpenAILikeEmbedding(model_name="dragon", api_base=f"{url}/v1", api_key="unused")
same("embeddings", len(embedding.get_text_embedding_batch(["a kettle", "a rabbit"])), 2)


def opening(hour: int) -> str:
    """Tells whether a place is open at an hour."""
    return "open" if hour > 11 else "closed"


calling = OpenAILike(
    model="dragon",
    api_base=f"{url}/v1",
    api_key="unused",
    is_chat_model=True,
    is_function_calling_model=True,
    context_window=2048,
)
tool = FunctionTool.from_defaults(opening)
answer = calling.chat_with_tools([tool], user_msg=question, tool_required=True)
(call,) = calling.get_tool_calls_from_response(answer)
same("call of a tool", (call.tool_name, type(call.tool_kwargs["hour"])), ("opening", int))
