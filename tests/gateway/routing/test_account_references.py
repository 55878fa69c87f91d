"""Things in an account at a provider: only callers that use its credential can name them, dialect by dialect."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from apps.gateway.access import policy
from apps.gateway.canonical.chat import Chat
from apps.gateway.dialects.chat.anthropic.client import read_request as anthropic
from apps.gateway.dialects.chat.google.client import read_request as google
from apps.gateway.dialects.chat.openai.client import read_request as openai
from apps.gateway.dialects.chat.responses.client import read_request as responses
from apps.gateway.routing.account_references import find_account_reference
from apps.keys.models import ProviderKey
from apps.keys.secrets import encrypt_credential
from tests.support.upstream import Caller, nothing_happened

Record = dict[str, Any]
SAYS = {"role": "user", "content": "hi"}
SCHEMA = {"type": "object", "properties": {"file_id": {"type": "string", "const": "file_id"}, "container": {}}}


def chat_of(**fields: Any) -> Chat:
    return openai.read_request(json.dumps({"model": "m", "messages": [SAYS], **fields}).encode())


def content_of(*parts: Record) -> Chat:
    return chat_of(messages=[{"role": "user", "content": list(parts)}])


def response_of(*items: Record, **fields: Any) -> Chat:
    body = {"model": "m", "input": [{"role": "user", "content": "hi"}, *items], **fields}
    return responses.read_request(json.dumps(body).encode())


def message_of(*blocks: Record, **fields: Any) -> Chat:
    said = [{"type": "text", "text": "hi"}, *blocks]
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": said}], **fields}
    return anthropic.read_request(json.dumps(body).encode())


def generate_of(*parts: Record, **fields: Any) -> Chat:
    body = {"contents": [{"role": "user", "parts": [{"text": "hi"}, *parts]}], **fields}
    return google.read_request(json.dumps(body).encode(), "m")


FILES = "https://generativelanguage.googleapis.com/v1beta/files/abc"
NAMED: list[tuple[Chat, str]] = [
    # Chat completions.
    (content_of({"type": "file", "file": {"file_id": "file-1"}}), "messages[0].file_id"),
    (content_of({"type": "image_url", "image_url": {"url": "gs://bucket/a.png"}}), "messages[0].image_url"),
    (content_of({"type": "image_url", "image_url": {"url": FILES}}), "messages[0].image_url"),
    (chat_of(tools=[{"type": "file_search", "vector_store_ids": ["vs_1"]}]), "tools[0].vector_store_ids"),
    (chat_of(tools=[{"type": "code_interpreter", "container": "cntr_1"}]), "tools[0].container"),
    (
        chat_of(tools=[{"type": "retrieval", "retrieval": {"knowledge_id": "1"}}]),
        "tools[0].retrieval.knowledge_id",
    ),
    (
        chat_of(tool_resources={"file_search": {"vector_store_ids": ["a"]}}),
        "tool_resources.file_search.vector_store_ids",
    ),
    (chat_of(data_sources=[{"type": "azure_search", "parameters": {}}]), "data_sources"),
    (chat_of(previous_response_id="resp_1"), "previous_response_id"),
    (chat_of(assistant_id="asst_1"), "assistant_id"),
    (chat_of(agent_id="ag_1"), "agent_id"),
    (chat_of(prompt={"id": "pmpt_1"}), "prompt"),
    (
        chat_of(messages=[SAYS, {"role": "assistant", "content": "a", "audio": {"id": "audio_1"}}, SAYS]),
        "messages[1].audio",
    ),
    # Responses.
    (response_of(tools=[{"type": "code_interpreter", "container": "cntr_1"}]), "tools[0].container"),
    (
        response_of(tools=[{"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["file-1"]}}]),
        "tools[0].container.file_ids",
    ),
    (response_of(tools=[{"type": "file_search", "vector_store_ids": ["vs_1"]}]), "tools[0].vector_store_ids"),
    (
        response_of(tools=[{"type": "shell", "environment": {"type": "container_reference", "container_id": "c"}}]),
        "tools[0].environment.container_id",
    ),
    (
        response_of(
            tools=[
                {
                    "type": "shell",
                    "environment": {
                        "type": "container_auto",
                        "skills": [{"type": "skill_reference", "skill_id": "skill_1"}],
                    },
                }
            ]
        ),
        "tools[0].environment.skills[0].skill_id",
    ),
    (
        response_of(tools=[{"type": "image_generation", "input_image_mask": {"file_id": "file-1"}}]),
        "tools[0].input_image_mask.file_id",
    ),
    (
        response_of(tools=[{"type": "mcp", "server_label": "a", "connector_id": "connector_gmail"}]),
        "tools[0].connector_id",
    ),
    (response_of({"role": "user", "content": [{"type": "input_file", "file_id": "file-1"}]}), "input.file_id"),
    (response_of({"role": "user", "content": [{"type": "input_image", "file_id": "file-1"}]}), "input.file_id"),
    # `auto` goes on in the container of an earlier call.
    (response_of({"type": "code_interpreter_call", "id": "ci", "container_id": "cntr_1"}), "input.container_id"),
    (response_of({"type": "image_generation_call", "id": "ig_1"}), "input.id"),
    (
        response_of({"type": "computer_call_output", "call_id": "c", "output": {"type": "x", "file_id": "file-1"}}),
        "input.output.file_id",
    ),
    # Messages.
    (message_of(container="container_1"), "container"),
    (message_of(container={"id": "container_1"}), "container"),
    (message_of(container={"skills": [{"type": "custom", "skill_id": "s"}]}), "container.skills[0].skill_id"),
    (message_of({"type": "container_upload", "file_id": "file_1"}), "messages.file_id"),
    (message_of({"type": "document", "source": {"type": "file", "file_id": "file_1"}}), "messages.file_id"),
    (message_of({"type": "image", "source": {"type": "file", "file_id": "file_1"}}), "messages.source.file_id"),
    # generateContent.
    (generate_of(cachedContent="cachedContents/1"), "cachedContent"),
    (generate_of({"fileData": {"mimeType": "application/pdf", "fileUri": FILES}}), "contents.file_url"),
    (generate_of({"fileData": {"mimeType": "application/pdf", "fileUri": "gs://b/a.pdf"}}), "contents.file_url"),
    (
        generate_of({"fileData": {"fileUri": "gs://b/a.mp4"}, "videoMetadata": {"fps": 1}}),
        "contents.file_url",
    ),
    (
        generate_of(tools=[{"fileSearch": {"fileSearchStoreNames": ["fileSearchStores/1"]}}]),
        "tools[0].fileSearch.fileSearchStoreNames",
    ),
    (
        generate_of(tools=[{"retrieval": {"vertexAiSearch": {"datastore": "projects/p/x"}}}]),
        "tools[0].retrieval.vertexAiSearch.datastore",
    ),
    (
        generate_of(tools=[{"retrieval": {"vertexRagStore": {"ragResources": [{"ragCorpus": "projects/p"}]}}}]),
        "tools[0].retrieval.vertexRagStore.ragResources",
    ),
    (generate_of(modelArmorConfig={"promptTemplateName": "projects/p"}), "modelArmorConfig.promptTemplateName"),
]
UNNAMED = [
    content_of({"type": "file", "file": {"file_data": "data:application/pdf;base64,QQ==", "filename": "a.pdf"}}),
    content_of({"type": "image_url", "image_url": {"url": "https://example.com/files/a.png"}}),
    content_of({"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}}),
    chat_of(tools=[{"type": "function", "function": {"name": "read", "parameters": SCHEMA}}]),
    chat_of(tools=[{"type": "custom", "custom": {"name": "read", "container": "x"}}]),
    chat_of(audio={"voice": "alloy", "format": "wav"}, metadata={"conversation": "1"}),
    response_of(tools=[{"type": "code_interpreter", "container": {"type": "auto"}}]),
    response_of(tools=[{"type": "shell", "environment": {"type": "container_auto"}}]),
    response_of(tools=[{"type": "image_generation"}, {"type": "computer"}]),
    response_of(tools=[{"type": "mcp", "server_label": "a", "server_url": "https://mcp.example.com"}]),
    response_of({"type": "image_generation_call", "id": "ig_1", "result": "QQ=="}),
    response_of({"type": "file_search_call", "id": "fs", "results": [{"file_id": "file-1", "text": "a"}]}),
    response_of(
        {
            "role": "assistant",
            "content": [{"type": "output_text", "text": "a", "annotations": [{"type": "x", "file_id": "f"}]}],
        }
    ),
    message_of(tools=[{"type": "code_execution_20250825", "name": "code_execution"}]),
    message_of(container={"skills": [{"type": "anthropic", "skill_id": "pptx", "version": "latest"}]}),
    message_of(mcp_servers=[{"type": "url", "url": "https://mcp.example.com", "name": "a"}]),
    generate_of(tools=[{"codeExecution": {}}, {"googleSearch": {}}, {"urlContext": {}}]),
    generate_of({"fileData": {"fileUri": "https://www.youtube.com/watch?v=1"}}),
]


@pytest.mark.parametrize(("chat", "field"), NAMED, ids=[f"{chat.dialect}-{field}" for chat, field in NAMED])
def test_what_an_account_has_is_found_by_the_field_that_names_it(chat: Chat, field: str) -> None:
    assert find_account_reference(chat) == field


@pytest.mark.parametrize("chat", UNNAMED, ids=str)
def test_what_a_client_sends_or_a_provider_makes_for_the_answer_names_nothing(chat: Chat) -> None:
    assert find_account_reference(chat) is None


def openai_error(param: str) -> Record:
    return {
        "message": f"{param} names something in an account at the provider: it can be used with a provider key of your "
        "organization's own alone (POST /keys/provider)",
        "type": "invalid_request_error",
        "code": "own_credential_required",
        "param": param,
    }


Ask = Callable[[str], tuple[str, Record]]
ROUTES: dict[str, tuple[Ask, str]] = {
    "chat": (
        lambda words: (
            "/v1/chat/completions",
            {
                "model": "sandbox/echo",
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "text", "text": words},
                            {"type": "file", "file": {"file_id": "file-of-another"}},
                        ],
                    }
                ],
            },
        ),
        "messages[0].file_id",
    ),
    "auto": (
        lambda words: (
            "/v1/chat/completions",
            {"model": "auto", "messages": [{"role": "user", "content": words}], "previous_response_id": "resp_1"},
        ),
        "previous_response_id",
    ),
    "responses": (
        lambda words: (
            "/v1/responses",
            {
                "model": "sandbox/echo",
                "input": words,
                "tools": [{"type": "code_interpreter", "container": "cntr_of_another"}],
            },
        ),
        "tools[0].container",
    ),
    "messages": (
        lambda words: (
            "/v1/messages",
            {
                "model": "sandbox/echo",
                "max_tokens": 9,
                "container": "container_of_another",
                "messages": [{"role": "user", "content": words}],
            },
        ),
        "container",
    ),
    "generateContent": (
        lambda words: (
            "/v1beta/models/sandbox%2Fecho:generateContent",
            {"contents": [{"parts": [{"text": words}]}], "cachedContent": "cachedContents/of-another"},
        ),
        "cachedContent",
    ),
    "bedrock": (
        lambda words: (
            "/v1/chat/completions",
            {
                "model": "sandbox/echo",
                "messages": [{"role": "user", "content": words}],
                "guardrailConfig": {"guardrailIdentifier": "gr-of-another"},
            },
        ),
        "guardrailConfig.guardrailIdentifier",
    ),
}


@pytest.mark.parametrize("route", ROUTES)
def test_with_the_services_credential_it_is_refused_before_anybody_is_asked(caller: Caller, route: str) -> None:
    ask, param = ROUTES[route]
    tag = uuid4().hex
    path, body = ask(f"hi [[sandbox tag={tag}]]")
    answer = caller.client.post(
        path, body, content_type="application/json", headers={"Authorization": f"Bearer {caller.token}"}
    )
    assert answer.status_code == 400
    error = openai_error(param)
    told = answer.json()["error"]
    if route == "messages":
        assert (told["type"], told["message"]) == (error["type"], error["message"])
    elif route == "generateContent":
        assert (told["status"], told["message"]) == ("INVALID_ARGUMENT", error["message"])
    else:
        assert told == error
    assert caller.sent(tag) == []
    assert nothing_happened(caller)


def test_with_an_own_credential_it_goes_to_the_account_of_that(caller: Caller) -> None:
    ProviderKey.objects.create(
        organization_id=caller.organization_id,
        provider="sandbox",
        encrypted_token=encrypt_credential("sk-our-own-key"),
    )
    project = caller.key.project
    project.mode = "hybrid"
    project.save()
    policy.forget_all()
    tag = uuid4().hex
    path, body = ROUTES["chat"][0](f"hi [[sandbox tag={tag}]]")
    answer = caller.client.post(
        path, body, content_type="application/json", headers={"Authorization": f"Bearer {caller.token}"}
    )
    assert answer.status_code == 200
    [sent] = caller.sent(tag)
    # The sandbox tells the end of a credential alone.
    assert sent["headers"]["authorization"].endswith("...-key")
    assert sent["body"]["messages"][0]["content"][1] == {"type": "file", "file": {"file_id": "file-of-another"}}
    # The service's credential is not for it, even if other providers may be asked with that.
    project.mode = "credits"
    project.save()
    policy.forget_all()
    again = caller.client.post(
        path, body, content_type="application/json", headers={"Authorization": f"Bearer {caller.token}"}
    )
    assert (again.status_code, again.json()["error"]["code"]) == (400, "own_credential_required")
    assert len(caller.sent(tag)) == 1
