"""Files for Anthropic's clients: the same ones, told of in its words, and named in messages."""

from __future__ import annotations

from base64 import b64encode
from typing import Any
from uuid import uuid4

import anthropic as sdk
import pytest
from anthropic import Anthropic
from openai import OpenAI

from apps.batches.models import StoredFile
from tests.batches.test_message_batches import anthropic, client_of
from tests.responses.conftest import neighbour
from tests.support.upstream import Caller

__all__ = ["anthropic"]

PDF = b"%PDF-1.4\n%%EOF"
UNKNOWN = "file-" + "0" * 48


def upload(client: Anthropic, name: str = "report.pdf", **fields: Any) -> Any:
    return client.beta.files.upload(file=(name, PDF, "application/pdf"), **fields)


def test_a_file_is_told_of_listed_read_and_deleted(anthropic: Anthropic, openai: OpenAI) -> None:
    made = upload(anthropic)
    assert (made.type, made.filename, made.mime_type, made.size_bytes, made.downloadable) == (
        "file",
        "report.pdf",
        "application/pdf",
        len(PDF),
        True,
    )
    assert StoredFile.objects.get(pk=made.id).purpose == "user_data"
    assert anthropic.beta.files.retrieve_metadata(made.id) == made
    assert openai.files.retrieve(made.id).filename == "report.pdf"
    assert anthropic.beta.files.download(made.id).read() == PDF
    deleted = anthropic.beta.files.delete(made.id)
    assert (deleted.id, deleted.type) == (made.id, "file_deleted")
    with pytest.raises(sdk.NotFoundError) as gone:
        anthropic.beta.files.retrieve_metadata(made.id)
    assert gone.value.body["error"] == {"type": "not_found_error", "message": f"No such File object: {made.id}"}


def test_lists_have_pages_for_newer_and_older_clients(anthropic: Anthropic, keeper: Caller) -> None:
    first, second, third = (upload(anthropic, f"{number}.pdf").id for number in range(3))
    assert [file.id for file in anthropic.beta.files.list(limit=2)] == [third, second, first]

    def page(**query: Any) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {keeper.token}", "anthropic-version": "2023-06-01"}
        return dict(keeper.client.get("/v1/files", query, headers=headers).json())

    newest = page(limit=2)
    assert [file["id"] for file in newest["data"]] == [third, second]
    assert {name: newest[name] for name in ("has_more", "first_id", "last_id", "next_page")} == {
        "has_more": True,
        "first_id": third,
        "last_id": second,
        "next_page": second,
    }
    oldest = page(page=second)
    assert ([file["id"] for file in oldest["data"]], oldest["next_page"], oldest["has_more"]) == ([first], None, False)
    assert page(after_id=second) == oldest
    assert [file["id"] for file in page(limit=1, before_id=first)["data"]] == [second]
    assert page(page=UNKNOWN)["error"]["message"] == "page must be an id of this list"
    both = page(after_id=first, before_id=third)
    assert both["error"]["message"] == "before_id cannot be given beside after_id or page"


@pytest.mark.parametrize("seconds", ["3599", "7776001", "soon"])
def test_a_life_out_of_bounds_is_refused(keeper: Caller, seconds: str) -> None:
    with client_of(keeper.token) as client, pytest.raises(sdk.BadRequestError) as refused:
        upload(client, extra_body={"expires_in_seconds": seconds})
    words = "expires_in_seconds must be a whole number from 3600 to 7776000"
    assert refused.value.body["error"] == {"type": "invalid_request_error", "message": words}
    assert not StoredFile.objects.exists()


def test_a_life_is_as_long_as_asked(anthropic: Anthropic) -> None:
    row = StoredFile.objects.get(pk=upload(anthropic, extra_body={"expires_in_seconds": "7200"}).id)
    assert round((row.expires_at - row.created_at).total_seconds()) == 7_200


def test_a_message_may_name_a_file_of_its_own_project_alone(anthropic: Anthropic, keeper: Caller) -> None:
    tag = uuid4().hex
    file_id = upload(anthropic).id
    document = {"type": "document", "source": {"type": "file", "file_id": file_id}}
    question: Any = [{"role": "user", "content": [{"type": "text", "text": f"look [[sandbox tag={tag}]]"}, document]}]
    asked: Any = {"model": "sandbox/echo", "max_tokens": 50, "messages": question}
    assert anthropic.messages.create(**asked).content[0].text == "You said: look (1 file)"
    [sent] = keeper.sent(tag)
    data = f"data:application/pdf;base64,{b64encode(PDF).decode()}"
    assert sent["body"]["messages"][0]["content"][1]["file"] == {"file_data": data, "filename": "report.pdf"}
    with client_of(neighbour(keeper)) as other, pytest.raises(sdk.NotFoundError):
        other.messages.create(**asked)
