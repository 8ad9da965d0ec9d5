"""LangChain's integration tests of chat models, on its OpenAI client: in chats, and in responses."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from checking import same, url
from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests

# What a larger model than the embedded one would do: call where it may, put in what it was told, end a text.
BEYOND_THE_MODEL = {
    "test_agent_loop",
    "test_bind_runnables_as_tools",
    "test_json_mode",
    "test_structured_output",
    "test_structured_output_async",
    "test_structured_output_optional_param",
    "test_structured_output_pydantic_2_v1",
    "test_tool_calling",
    "test_tool_calling_async",
    "test_unicode_tool_call_integration",
}


class TestChat(ChatModelIntegrationTests):  # type: ignore[misc]
    """The suite, on chat completions."""

    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        kind: type[BaseChatModel] = ChatOpenAI
        return kind

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": "dragon", "base_url": f"{url}/v1", "api_key": "unused", "stream_usage": True}

    @property
    def supports_json_mode(self) -> bool:
        return True


class TestResponses(TestChat):
    """The suite, on responses."""

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return super().chat_model_params | {"use_responses_api": True}


class Outcomes:
    """A plugin that keeps how tests ended."""

    def __init__(self) -> None:
        self.names: dict[str, set[str]] = {"passed": set(), "failed": set(), "skipped": set()}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.names[report.outcome].add(report.nodeid.rpartition("::")[2].partition("[")[0])


if __name__ == "__main__":
    for kind in ("TestChat", "TestResponses"):
        outcomes = Outcomes()
        flags = ["-q", "-p", "no:cacheprovider", "-c", "/dev/null", "-o", "asyncio_mode=auto", "--tb=short"]
        pytest.main([*flags, f"{__file__}::{kind}"], plugins=[outcomes])
        print({outcome: len(names) for outcome, names in outcomes.names.items()}, file=sys.stderr)
        same(kind, outcomes.names["failed"], BEYOND_THE_MODEL)
