"""Mistakes that mypy must refuse. If it accepts one, its `type: ignore` is unused, which fails `script/check`."""

from __future__ import annotations

from dataclasses import replace

from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.dialects import ClientDialect, ProviderDialect
from apps.gateway.dialects.chat.openai import CLIENT, PROVIDER
from apps.gateway.endpoints.answering import answer_chat
from apps.gateway.tasks import Task
from apps.gateway.tasks.chat import TASK


def misspell_a_provider_hook() -> ProviderDialect:
    return replace(PROVIDER, write_requests=PROVIDER.write_request)  # type: ignore[call-arg]  # it is `write_request`


def give_a_provider_hook_of_another_signature() -> ProviderDialect:
    return replace(PROVIDER, write_request=PROVIDER.read_reply)  # type: ignore[arg-type]  # it takes a chat and a target


def misspell_a_client_hook() -> ClientDialect:
    return replace(CLIENT, write_replies=CLIENT.write_reply)  # type: ignore[call-arg]  # it is `write_reply`


def give_a_client_hook_of_another_signature() -> ClientDialect:
    return replace(CLIENT, read_request=CLIENT.write_error)  # type: ignore[arg-type]  # it takes the bytes of a body


def misspell_a_task_hook() -> Task:
    return replace(TASK, requirement_of=TASK.requirements_of)  # type: ignore[call-arg]  # it is `requirements_of`


def answer_under_a_route_without_metrics(request: ClientRequest) -> ClientResponse:
    return answer_chat(request, "chat_completion", CLIENT)  # type: ignore[arg-type]  # it is `chat_completions`
