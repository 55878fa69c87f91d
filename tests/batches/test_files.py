"""Files: stored encrypted in chunks, listed, read and deleted by their own project, bounded, and gone in time."""

from __future__ import annotations

import os
import time
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import openai as sdk
import pytest
from django.test import override_settings
from django.utils import timezone
from openai import OpenAI

from apps.batches import file_endpoints, retention
from apps.batches.models import FileChunk, StoredFile
from apps.batches.stored_files import CHUNK
from apps.gateway.access import policy
from apps.keys.models import ApiKey
from apps.organizations.models import Organization, RetentionLevel
from apps.organizations.storage_bounds import max_file_bytes
from apps.responses.retention import expiry_of
from tests.responses.conftest import Clients, keep, neighbour, stranger
from tests.support.upstream import Caller

UNKNOWN = "file-" + "0" * 48


def upload(client: OpenAI, content: bytes = b"one\ntwo\n", name: str = "lines.jsonl", **fields: Any) -> Any:
    return client.files.create(file=(name, content), **{"purpose": "batch", **fields})


def test_a_file_is_told_of_listed_read_and_deleted(openai: OpenAI) -> None:
    made = upload(openai, name="Zeilen für heute.jsonl")
    assert (made.object, made.bytes, made.filename, made.purpose, made.status) == (
        "file",
        8,
        "Zeilen für heute.jsonl",
        "batch",
        "processed",
    )
    assert (made.expires_at or 0) - made.created_at == 30 * 86_400
    assert openai.files.retrieve(made.id) == made
    other = upload(openai, b"more", purpose="user_data")
    assert [file.id for file in openai.files.list()] == [other.id, made.id]
    assert [file.id for file in openai.files.list(order="asc", limit=1)] == [made.id, other.id]
    assert [file.id for file in openai.files.list(purpose="batch")] == [made.id]
    assert openai.files.content(made.id).content == b"one\ntwo\n"
    assert openai.files.delete(made.id).deleted is True
    assert (StoredFile.objects.get().pk, FileChunk.objects.count()) == (other.id, 1)
    with pytest.raises(sdk.NotFoundError):
        openai.files.content(made.id)


def test_a_life_is_counted_from_when_a_file_was_made_however_long_that_took(
    openai: OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(organization_id: UUID, now: datetime) -> datetime:
        time.sleep(1.1)
        return expiry_of(organization_id, now)

    monkeypatch.setattr(file_endpoints, "expiry_of", slowly)
    made = upload(openai, expires_after={"anchor": "created_at", "seconds": 3600})
    assert (made.expires_at or 0) - made.created_at == 3600


def test_a_large_file_lies_in_encrypted_chunks_and_comes_back_as_it_was(openai: OpenAI) -> None:
    content = os.urandom(2 * CHUNK + 17)
    made = upload(openai, content + b"a secret")
    assert made.bytes == len(content) + 8
    chunks = FileChunk.objects.filter(file_id=made.id).order_by("position")
    assert [chunk.position for chunk in chunks] == [0, 1, 2]
    row = StoredFile.objects.get()
    assert not any("secret" in text or "lines" in text for text in [chunks[2].sealed_content, row.sealed_name])
    response = openai.files.content(made.id)
    assert response.content == content + b"a secret"
    assert response.response.headers["content-length"] == str(made.bytes)


def test_what_is_anothers_cannot_be_told_from_what_never_was(keeper: Caller, openai: OpenAI, clients: Clients) -> None:
    made = upload(openai)

    def answers(client: OpenAI, file_id: str) -> list[tuple[int, str]]:
        told = []
        for ask in (client.files.retrieve, client.files.delete, client.files.content):
            with pytest.raises(sdk.APIStatusError) as refused:
                ask(file_id)
            told.append((refused.value.status_code, refused.value.response.text.replace(file_id, "ID")))
        return told

    for token in (neighbour(keeper), stranger(keeper)):
        client = clients(token)
        assert answers(client, made.id) == answers(client, UNKNOWN)
        assert list(client.files.list()) == []
        with pytest.raises(sdk.BadRequestError):
            list(client.files.list(after=made.id))
    assert openai.files.content(made.id).content == b"one\ntwo\n"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"purpose": "anything"}, "purpose"),
        ({"content": b""}, "file"),
        ({"name": "x" * 256}, "file"),
        ({"expires_after": {"anchor": "created_at", "seconds": 3_599}}, "expires_after[seconds]"),
        ({"expires_after": {"anchor": "last_active_at", "seconds": 3_600}}, "expires_after[anchor]"),
    ],
)
def test_wrong_fields_are_refused_by_name_and_nothing_is_stored(
    openai: OpenAI, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(sdk.BadRequestError) as refused:
        upload(openai, **fields)
    assert refused.value.param == param
    assert not StoredFile.objects.exists()


@pytest.mark.parametrize("query", [{"limit": 0}, {"limit": 10_001}, {"order": "up"}, {"after": UNKNOWN}])
def test_wrong_parameters_of_a_list_are_refused_by_name(openai: OpenAI, query: dict[str, Any]) -> None:
    with pytest.raises(sdk.BadRequestError) as refused:
        openai.files.list(**query)
    assert refused.value.param == next(iter(query))


def test_only_a_form_is_taken(keeper: Caller) -> None:
    headers = {"Authorization": f"Bearer {keeper.token}"}
    refused = keeper.client.post("/v1/files", {"file": "x"}, content_type="application/json", headers=headers)
    assert refused.status_code == 415
    assert not StoredFile.objects.exists()


def test_a_projects_room_ends(openai: OpenAI) -> None:
    with override_settings(FILE_BYTES_PER_PROJECT=10):
        upload(openai)
        with pytest.raises(sdk.BadRequestError) as refused:
            upload(openai, b"abc")
        assert (refused.value.code, refused.value.param) == ("storage_limit_exceeded", "file")
        upload(openai, b"ab")
    assert StoredFile.objects.count() == 2


def test_an_organizations_room_ends_whatever_its_projects(
    keeper: Caller, openai: OpenAI, clients: Clients, settings: Any
) -> None:
    settings.FILE_BYTES = {**settings.FILE_BYTES, "enterprise": 10}
    next_door = clients(neighbour(keeper))
    upload(openai, b"12345678")
    for client in (openai, next_door):
        with pytest.raises(sdk.BadRequestError) as refused:
            upload(client, b"abc")
        assert (refused.value.code, refused.value.param) == ("storage_limit_exceeded", "file")
        assert (
            "The files of this organization may be 10 bytes together, and 8 are stored: delete some, wait until they "
            "expire, or choose a larger plan"
        ) in refused.value.message
    assert (StoredFile.objects.count(), FileChunk.objects.count()) == (1, 1)
    upload(next_door, b"ab")
    # Another organization's room is its own.
    upload(clients(stranger(keeper)), b"abc")


def test_the_free_plan_stores_little_without_credits_and_more_with_some(
    keeper: Caller, openai: OpenAI, settings: Any
) -> None:
    settings.STORED_BYTES_WITHOUT_CREDITS = 10
    organizations = Organization.objects.filter(pk=keeper.organization_id)
    organizations.update(plan="free", credits=0)
    policy.forget_all()
    with pytest.raises(sdk.BadRequestError) as refused:
        upload(openai, b"12345678901")
    assert refused.value.code == "storage_limit_exceeded"
    assert "on the free plan without credits may be 10 bytes together, and 0 are stored" in refused.value.message
    assert "add credits" in refused.value.message
    assert not StoredFile.objects.exists()
    assert not FileChunk.objects.exists()
    organizations.update(credits=1)
    upload(openai, b"12345678901")
    organizations.update(plan="pro", credits=0)
    upload(openai, b"12345678901")


@pytest.mark.parametrize(
    ("plan", "gibibytes"), [("free", 5), ("pro", 50), ("enterprise", 500)], ids=["free", "pro", "enterprise"]
)
def test_plans_have_room_for_so_much(plan: str, gibibytes: int, settings: Any) -> None:
    paying, owing = (Organization(plan=plan, credits=credits) for credits in (1, 0))
    assert max_file_bytes(paying) == gibibytes * 1024**3
    assert max_file_bytes(owing) == (100 * 1024**2 if plan == "free" else gibibytes * 1024**3)
    settings.FILE_BYTES = {**settings.FILE_BYTES, plan: 7}
    assert (max_file_bytes(paying), max_file_bytes(owing)) == (7, 7)


def test_files_go_when_their_time_is_over(openai: OpenAI) -> None:
    short = upload(openai, expires_after={"anchor": "created_at", "seconds": 3_600})
    long = upload(openai)
    assert (short.expires_at or 0) - short.created_at == 3_600
    assert retention.purge(timezone.now()) == 0
    assert retention.purge(timezone.now() + timedelta(hours=2)) == 1
    assert [file.id for file in openai.files.list()] == [long.id]


def test_an_organization_that_keeps_no_content_keeps_no_files(keeper: Caller, openai: OpenAI) -> None:
    made = upload(openai)
    keep(keeper, RetentionLevel.METADATA)
    with pytest.raises(sdk.BadRequestError) as refused:
        upload(openai)
    assert refused.value.code == "zero_data_retention"
    with pytest.raises(sdk.NotFoundError):
        openai.files.content(made.id)
    assert list(openai.files.list()) == []
    assert retention.purge(timezone.now()) == 1
    assert not FileChunk.objects.exists()


def test_a_revoked_key_reads_nothing_more(
    keeper: Caller, openai: OpenAI, django_capture_on_commit_callbacks: Any
) -> None:
    made = upload(openai)
    keeper.key.status = ApiKey.Status.INACTIVE
    with django_capture_on_commit_callbacks(execute=True):
        keeper.key.save()
    with pytest.raises(sdk.AuthenticationError):
        openai.files.content(made.id)
    with pytest.raises(sdk.AuthenticationError):
        upload(openai)
    assert StoredFile.objects.count() == 1


def test_an_upload_that_was_cut_short_is_seen_by_nobody_and_goes(openai: OpenAI) -> None:
    made = upload(openai)
    StoredFile.objects.update(is_complete=False, expires_at=timezone.now() + timedelta(hours=1))
    assert list(openai.files.list()) == []
    with pytest.raises(sdk.NotFoundError):
        openai.files.retrieve(made.id)
    assert retention.purge(timezone.now() + timedelta(hours=2)) == 1
