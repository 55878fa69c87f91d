"""Files that requests name by their ids: their content reaches the provider that answers, bounded, in every format."""

from __future__ import annotations

from base64 import b64encode
from typing import Any
from uuid import uuid4

import openai as sdk
import pytest
from django.test import override_settings
from openai import OpenAI

from apps.organizations.models import RetentionLevel
from tests.clients.pictures import PIXEL
from tests.responses.conftest import Clients, keep, neighbour
from tests.support.anthropic_requests import speak
from tests.support.guardrails_in_force import forbid, guard
from tests.support.upstream import Caller

PDF = b"%PDF-1.4\n%%EOF"
ALONE = {"X-No-Fallback": "true"}
FOREIGN = "file-abcdefghijklmnopqrstuv"


def upload(client: OpenAI, content: bytes = PDF, name: str = "report.pdf") -> str:
    """Return the id of a new file."""
    return client.files.create(file=(name, content), purpose="user_data").id


def ask(client: OpenAI, *file_ids: str, tag: str = "") -> Any:
    """Ask for a completion about files."""
    parts: list[Any] = [{"type": "file", "file": {"file_id": file_id}} for file_id in file_ids]
    words = {"type": "text", "text": f"look [[sandbox tag={tag or uuid4().hex}]]"}
    return client.chat.completions.create(
        model="sandbox/echo", messages=[{"role": "user", "content": [words, *parts]}], extra_headers=ALONE
    )


def test_a_file_goes_to_the_provider_in_full(openai: OpenAI, keeper: Caller) -> None:
    tag = uuid4().hex
    answer = ask(openai, upload(openai), tag=tag)
    assert answer.choices[0].message.content == "You said: look (1 file)"
    [sent] = keeper.sent(tag)
    data = f"data:application/pdf;base64,{b64encode(PDF).decode()}"
    assert sent["body"]["messages"][0]["content"][1] == {
        "type": "file",
        "file": {"file_data": data, "filename": "report.pdf"},
    }


def test_a_file_goes_to_a_provider_of_another_format(openai: OpenAI, keeper: Caller) -> None:
    speak("anthropic")
    tag = uuid4().hex
    ask(openai, upload(openai), upload(openai, b"Sun.\n", "notes.txt"), tag=tag)
    [sent] = keeper.sent(tag)
    documents = [block for block in sent["body"]["messages"][0]["content"] if block["type"] == "document"]
    assert [document["source"]["media_type"] for document in documents] == ["application/pdf", "text/plain"]
    assert documents[0]["source"]["data"] == b64encode(PDF).decode()


def test_files_and_pictures_of_a_response_go_to_the_provider_in_full(openai: OpenAI, keeper: Caller) -> None:
    tag = uuid4().hex
    picture, report = upload(openai, PIXEL, "pixel"), upload(openai)
    parts: list[Any] = [
        {"type": "input_text", "text": f"look [[sandbox tag={tag}]]"},
        {"type": "input_image", "file_id": picture, "detail": "low"},
        {"type": "input_file", "file_id": report},
    ]
    answer = openai.responses.create(model="sandbox/echo", input=[{"role": "user", "content": parts}])
    assert answer.output_text == "You said: look (1 image, 1 file)"
    [sent] = keeper.sent(tag)
    image = sent["body"]["messages"][0]["content"][1]["image_url"]
    assert image == {"url": f"data:image/png;base64,{b64encode(PIXEL).decode()}", "detail": "low"}
    counted = openai.responses.input_tokens.count(model="sandbox/echo", input=[{"role": "user", "content": parts}])
    assert counted.input_tokens > 0
    wrong: Any = [{"type": "input_image", "file_id": report, "detail": "auto"}]
    with pytest.raises(sdk.BadRequestError, match="The file is no image"):
        openai.responses.create(model="sandbox/echo", input=[{"role": "user", "content": wrong}])


def test_a_file_that_the_caller_does_not_reach_is_not_found(openai: OpenAI, keeper: Caller, clients: Clients) -> None:
    file_id, tag = upload(openai), uuid4().hex
    for client in (clients(neighbour(keeper)), openai):
        if client is openai:
            keep(keeper, RetentionLevel.METADATA)
        with pytest.raises(sdk.NotFoundError) as refused:
            ask(client, file_id, tag=tag)
        assert (refused.value.message.endswith(f"No such File object: {file_id}"), refused.value.param) == (
            True,
            "messages[0]",
        )
    assert keeper.sent(tag) == []


def test_an_id_that_is_not_of_ours_is_for_an_own_credential(openai: OpenAI, keeper: Caller) -> None:
    tag = uuid4().hex
    with pytest.raises(sdk.BadRequestError) as refused:
        ask(openai, FOREIGN, tag=tag)
    assert (refused.value.code, refused.value.param) == ("own_credential_required", "messages[0].file_id")
    assert keeper.sent(tag) == []


def test_files_of_a_request_are_bounded(openai: OpenAI, keeper: Caller) -> None:
    file_ids = [upload(openai, PDF + b" " * number) for number in range(21)]
    with pytest.raises(sdk.BadRequestError, match="at most 20 files"):
        ask(openai, *file_ids)
    assert ask(openai, *file_ids[:20]).choices[0].message.content == "You said: look (20 files)"
    large = upload(openai, PDF + b" " * 2_000)
    with override_settings(BODY_LIMIT=2_000), pytest.raises(sdk.APIStatusError) as refused:
        ask(openai, large)
    assert refused.value.status_code == 413
    assert "The files that the request names" in refused.value.message


def test_guardrails_read_a_file_that_a_request_names(openai: OpenAI, keeper: Caller) -> None:
    guard(keeper)
    forbid(keeper, "Nightingale")
    tag = uuid4().hex
    with pytest.raises(sdk.BadRequestError) as refused:
        ask(openai, upload(openai, b"All about Nightingale.\n", "notes.txt"), tag=tag)
    assert refused.value.code == "guardrail_blocked"
    assert keeper.sent(tag) == []
