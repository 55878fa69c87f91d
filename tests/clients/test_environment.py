"""The two settings that the README names, and nothing else, point every client at the gateway."""

from __future__ import annotations

import anthropic
import openai
import pytest
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI
from pydantic_ai import Agent

from tests.clients.gateway import Gateway

pytestmark = [pytest.mark.stack, pytest.mark.anyio, pytest.mark.usefixtures("one_loop", "_settings")]

MODEL = "sandbox/echo"


@pytest.fixture
def _settings(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", gateway.openai_url)
    monkeypatch.setenv("OPENAI_API_KEY", gateway.key)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", gateway.url)
    monkeypatch.setenv("ANTHROPIC_API_KEY", gateway.key)


def test_the_sdks() -> None:
    reply = openai.OpenAI().chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hello"}])
    assert reply.choices[0].message.content == "You said: hello"
    message = anthropic.Anthropic().messages.create(
        model=MODEL, max_tokens=10, messages=[{"role": "user", "content": "hello"}]
    )
    assert message.content[0].text == "You said: hello"


def test_langchain() -> None:
    assert ChatOpenAI(model=MODEL).invoke("hello").text == "You said: hello"
    assert ChatAnthropic(model=MODEL, max_tokens=10).invoke("hello").text == "You said: hello"


@pytest.mark.parametrize("kind", ["openai-chat", "anthropic"])
async def test_pydantic_ai(kind: str) -> None:
    assert (await Agent(f"{kind}:{MODEL}").run("hello")).output == "You said: hello"
