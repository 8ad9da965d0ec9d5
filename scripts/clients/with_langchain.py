"""LangChain, with langchain-openai."""

from __future__ import annotations

from checking import expected, question, same, url
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from pydantic import SecretStr

place = {"model": "dragon", "base_url": f"{url}/v1", "api_key": SecretStr("unused")}

chat = ChatOpenAI(**place)
same("chat", chat.invoke(question).content, expected)
same("streamed chat", "".join(str(chunk.content) for chunk in chat.stream(question)), expected)
told = chat.invoke([SystemMessage("Be brief."), HumanMessage(question)])
same("finish reason", told.response_metadata["finish_reason"], "stop")
answers = ChatOpenAI(**place, use_responses_api=True).invoke(question)
same("response", answers.text, expected)
prompt = f"\nQuestion: {question}\nAnswer:"
same("completion", OpenAI(**place, temperature=0, max_tokens=64).invoke(prompt).strip(), expected)
# Without this it sends token ids of OpenAI's tokenizer.
embeddings = OpenAIEmbeddings(**place, check_embedding_ctx_length=False)
same("embeddings", len(embeddings.embed_documents(["a kettle", "a rabbit"])), 2)
