"""LangChain's standard tests for chat models, its OpenAI and its Anthropic one, over every format of provider."""

from __future__ import annotations

from typing import Any, Literal

import httpx
import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests

from tests.clients.gateway import Behind, Gateway
from tests.clients.pictures import PAGE, PIXEL

pytestmark = [pytest.mark.stack, pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]

BEYOND_THE_SANDBOX = {
    (
        "anthropic",
        "test_anthropic_inputs",
    ): "its thinking is sealed by a real Claude; the sandbox takes its own seals only",
}
"""Tests that the sandbox cannot serve, by format of provider and test."""


class Standard(ChatModelIntegrationTests):
    """The common part of both. The suite itself skips a test for a feature that the model lacks."""

    gateway: Gateway
    behind: Behind

    @pytest.fixture(autouse=True)
    def _pointed(
        self, gateway: Gateway, behind: Behind, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
    ) -> None:
        """Point the model at the gateway; the suite's pictures and documents come from here, not from the internet."""

        def download(url: str, **options: Any) -> httpx.Response:
            return httpx.Response(200, content=PAGE if url.endswith(".pdf") else PIXEL)

        monkeypatch.setattr(httpx, "get", download)
        self.gateway, self.behind = gateway, behind
        if reason := BEYOND_THE_SANDBOX.get((behind.format, request.function.__name__)):
            request.applymarker(pytest.mark.xfail(reason=reason, strict=True))

    supports_image_inputs = True
    supports_pdf_inputs = True
    supports_image_tool_message = True
    supports_model_override = True
    model_override_value = "gpt-4o-mini"
    supported_usage_metadata_details: dict[Literal["invoke", "stream"], list[Any]] = {
        "invoke": ["reasoning_output", "cache_read_input"],
        "stream": ["reasoning_output", "cache_read_input"],
    }

    def ask(self, model: BaseChatModel, words: str, *, stream: bool) -> AIMessage:
        """Return the answer, whole or put together."""
        if not stream:
            return model.invoke(words)
        full: AIMessageChunk | None = None
        for chunk in model.stream(words):
            full = chunk if full is None else full + chunk
        assert full is not None
        return full

    def invoke_with_cache_read_input(self, *, stream: bool = False) -> AIMessage:
        """Ask what the provider has partly read before."""
        model = self.chat_model_class(**self.chat_model_params)
        return self.ask(model, "hello [[sandbox usage=1000,200,300]]", stream=stream)


class TestChatOpenAI(Standard):
    """`langchain-openai`, on chat completions."""

    chat_model_class = ChatOpenAI
    supports_json_mode = True

    @property
    def chat_model_params(self) -> dict[str, Any]:
        """Point it at the gateway."""
        return {
            "model": self.behind.model,
            "base_url": self.gateway.openai_url,
            "api_key": self.gateway.key,
            "max_retries": 0,
            "stream_usage": True,
        }

    def invoke_with_reasoning_output(self, *, stream: bool = False) -> AIMessage:
        """Ask for thoughts."""
        model = ChatOpenAI(**self.chat_model_params, reasoning_effort="low")
        return self.ask(model, "think", stream=stream)


class TestChatAnthropic(Standard):
    """`langchain-anthropic`, on messages."""

    chat_model_class = ChatAnthropic
    supports_anthropic_inputs = True

    @property
    def chat_model_params(self) -> dict[str, Any]:
        """Point it at the gateway."""
        return {
            "model": self.behind.model,
            "base_url": self.gateway.url,
            "api_key": self.gateway.key,
            "max_retries": 0,
            "max_tokens": 3000,
        }

    def invoke_with_reasoning_output(self, *, stream: bool = False) -> AIMessage:
        """Ask for thoughts."""
        model = ChatAnthropic(**self.chat_model_params, thinking={"type": "enabled", "budget_tokens": 1024})
        return self.ask(model, "think", stream=stream)
