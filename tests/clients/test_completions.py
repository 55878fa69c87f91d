"""OpenAI's own client in its legacy format, over every format of provider: whole, streamed, and what it is refused."""

from __future__ import annotations

import openai
import pytest

from tests.clients.gateway import EVERY_FORMAT, Behind, Gateway

pytestmark = pytest.mark.stack


@pytest.fixture
def client(gateway: Gateway) -> openai.OpenAI:
    """The official client, pointed at the gateway, and each question answered by one provider alone."""
    alone = {"X-No-Fallback": "true"}
    return openai.OpenAI(base_url=gateway.openai_url, api_key=gateway.key, max_retries=0, default_headers=alone)


@pytest.mark.parametrize("behind", EVERY_FORMAT, ids=[behind.format for behind in EVERY_FORMAT])
def test_a_prompt_is_completed_whole_and_streamed(client: openai.OpenAI, behind: Behind) -> None:
    whole = client.completions.create(model=behind.model, prompt="hello", max_tokens=500, echo=True)
    assert (whole.object, whole.choices[0].text) == ("text_completion", "helloYou said: hello")
    assert (whole.choices[0].finish_reason, whole.choices[0].logprobs) == ("stop", None)
    assert whole.usage is not None
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens > 0
    pieces = list(
        client.completions.create(
            model=behind.model, prompt=["one two"], max_tokens=500, stream=True, stream_options={"include_usage": True}
        )
    )
    assert {piece.object for piece in pieces} == {"text_completion"}
    assert "".join(choice.text for piece in pieces for choice in piece.choices) == "You said: one two"
    assert [choice.finish_reason for piece in pieces for choice in piece.choices][-1] == "stop"
    assert (pieces[-1].choices, pieces[-1].usage is not None) == ([], True)


def test_what_it_cannot_have_is_an_error_that_names_the_field(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model="sandbox/echo", prompt="a", suffix="z")
    assert (refused.value.param, refused.value.code) == ("suffix", "unsupported_feature")
    with pytest.raises(openai.BadRequestError) as tokens:
        client.completions.create(model="sandbox/echo", prompt=[[1, 2]], stream=True)
    assert tokens.value.param == "prompt"
