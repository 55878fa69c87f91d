"""Compaction: a conversation summed up into one sealed item, by the official client's own method."""

from __future__ import annotations

from uuid import uuid4

import openai as sdk
import pytest
from openai import OpenAI

from apps.logs.models import RequestLog
from apps.organizations.models import RetentionLevel
from apps.responses import response_endpoints
from apps.responses.models import StoredResponse
from tests.responses.conftest import Clients, keep, neighbour
from tests.support.upstream import Caller, settle_all

MODEL = "sandbox/echo"
# The sandbox answers with what it is asked last: the summary is about the task itself.
SUMMARY = "You said: Summarize the conversation so far, as instructed."


@pytest.mark.parametrize("level", [RetentionLevel.NONE, RetentionLevel.RETAIN])
def test_a_conversation_is_summed_up_and_goes_on_from_its_summary(
    caller: Caller, clients: Clients, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(caller, level)
    client, tag = clients(caller.token), uuid4().hex
    monkeypatch.setattr(response_endpoints, "TASK", f"{response_endpoints.TASK} [[sandbox tag={tag}]]")
    compacted = client.responses.compact(
        model=MODEL,
        instructions="Be a sailor",
        input=[
            {"role": "user", "content": "I am Ada"},
            {"role": "assistant", "content": "Ahoy Ada"},
            {"role": "user", "content": "bye"},
        ],
    )
    assert compacted.object == "response.compaction"
    assert [item.type for item in compacted.output] == ["message", "message", "compaction"]
    assert compacted.usage.output_tokens > 0
    (sent,) = caller.sent(tag)
    said = [one["content"] for one in sent["body"]["messages"]]
    assert said[1:] == [
        "The assistant's instructions were:\n\nBe a sailor",
        "I am Ada",
        "Ahoy Ada",
        "bye",
        response_endpoints.TASK,
    ]
    # It is charged as any request, and its input is not stored.
    assert settle_all() == 1
    assert RequestLog.objects.get().route == "responses"
    assert not StoredResponse.objects.exists()
    item, tag = compacted.output[-1].to_dict(), uuid4().hex
    client.responses.create(
        model=MODEL,
        input=[item, {"role": "user", "content": f"go on [[sandbox tag={tag}]]"}],
        store=False,
    )
    (sent,) = caller.sent(tag)
    first = sent["body"]["messages"][0]
    assert (first["role"], first["content"].endswith(SUMMARY)) == ("user", True)


def test_a_summary_opens_for_its_own_project_only(keeper: Caller, openai: OpenAI, clients: Clients) -> None:
    item = openai.responses.compact(model=MODEL, input="hello").output[-1].to_dict()
    changed = {**item, "encrypted_content": f"{item['encrypted_content']}"[:-8] + "AAAAAAA="}
    for client, sent in ((clients(neighbour(keeper)), item), (openai, changed)):
        with pytest.raises(sdk.BadRequestError) as refused:
            client.responses.create(model=MODEL, input=[sent])
        assert refused.value.param == "input[0].encrypted_content"


def test_a_stored_chain_is_summed_up_by_its_id(keeper: Caller, openai: OpenAI) -> None:
    first = openai.responses.create(model=MODEL, input="one")
    second = openai.responses.create(model=MODEL, input="two", previous_response_id=first.id)
    compacted = openai.responses.compact(model=MODEL, previous_response_id=second.id)
    users = [item for item in compacted.output if item.type == "message"]
    assert [item.content[0].text for item in users] == ["one", "two"]


def test_an_error_of_the_model_is_the_compactions(openai: OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_endpoints, "TASK", "sum up [[sandbox status=400]]")
    with pytest.raises(sdk.APIStatusError) as refused:
        openai.responses.compact(model=MODEL, input="hello")
    assert refused.value.status_code == 400
    with pytest.raises(sdk.BadRequestError) as nothing:
        openai.responses.compact(model=MODEL)
    assert nothing.value.param == "input"
