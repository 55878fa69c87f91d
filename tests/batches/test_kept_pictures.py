"""Links to pictures: signed, short-lived, only of organizations that keep content, and in no list."""

from __future__ import annotations

from base64 import b64encode
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.db import OperationalError
from django.utils import timezone

from apps.batches import retention
from apps.batches.kept_pictures import PictureStore
from apps.batches.models import FileChunk, FilePurpose, StoredFile
from apps.batches.stored_files import FileWriter
from apps.gateway.access import policy
from apps.kernel.valkey import generation
from apps.logs.models import RequestLog
from apps.organizations.models import Organization
from tests.support.image_requests import generate, size_of
from tests.support.upstream import Caller, nothing_happened, settle_all


@pytest.fixture
def keeper(caller: Caller) -> Caller:
    """The caller, whose organization keeps content."""
    organization = Organization.objects.get(pk=caller.organization_id)
    organization.retention_level = "retain"
    organization.save()
    policy.forget_all()
    return caller


def fetch(caller: Caller, url: str) -> tuple[Any, bytes]:
    """Return the answer to a link, which is asked for without a key, and its body."""
    parts = urlsplit(url)
    response: Any = caller.client.get(f"{parts.path}?{parts.query}")
    body = b"".join(response.streaming_content) if response.streaming else response.content
    return response, body


def test_a_link_leads_to_the_picture_for_an_hour_without_a_key(keeper: Caller, settings: Any) -> None:
    response = generate(keeper, "a cat", image_links=True, n=2, size="1024x1536")
    assert response.status_code == 200, response.content
    first, second = (image["url"] for image in response.json()["data"])
    assert ["b64_json" in image for image in response.json()["data"]] == [False, False]
    assert first.startswith(f"{settings.PUBLIC_URL}/v1/images/files/file-")
    assert first != second
    until = int(parse_qs(urlsplit(first).query)["expires"][0])
    assert abs(until - timezone.now().timestamp() - 3_600) < 60
    answer, picture = fetch(keeper, first)
    assert answer.status_code == 200
    assert size_of(b64encode(picture).decode()) == (1024, 1536)
    assert (answer["Content-Type"], answer["X-Content-Type-Options"]) == ("image/png", "nosniff")
    assert (int(answer["Content-Length"]), answer["Content-Disposition"]) == (len(picture), "inline")
    kept, _, immutable = answer["Cache-Control"].partition(", immutable")
    assert (kept[:17], immutable) == ("private, max-age=", "")
    assert 3_500 < int(kept[17:]) <= 3_600
    assert settle_all() == 1
    assert RequestLog.objects.get().completion_tokens == 2_112


def test_a_picture_is_encrypted_and_in_nobodys_list(keeper: Caller) -> None:
    url = generate(keeper, image_links=True).json()["data"][0]["url"]
    row = StoredFile.objects.get()
    assert (row.purpose, row.is_complete) == (FilePurpose.IMAGE_LINK, True)
    headers = {"Authorization": f"Bearer {keeper.token}"}
    assert keeper.client.get("/v1/files", headers=headers).json()["data"] == []
    for path in (f"/v1/files/{row.pk}", f"/v1/files/{row.pk}/content"):
        assert keeper.client.get(path, headers=headers).status_code == 404
    assert keeper.client.get(f"/v1/images/files/{row.pk}", headers=headers).status_code == 401
    answer, picture = fetch(keeper, url)
    assert answer.status_code == 200
    # So much of its beginning that no encrypted text has it by chance.
    assert b64encode(picture[:24]).decode() not in FileChunk.objects.get().sealed_content


def test_a_changed_link_leads_nowhere(keeper: Caller) -> None:
    url = generate(keeper, image_links=True).json()["data"][0]["url"]
    other = generate(keeper, "a dog", image_links=True).json()["data"][0]["url"]
    file_id, query = urlsplit(url).path.rpartition("/")[2], parse_qs(urlsplit(url).query)
    until, signature = query["expires"][0], query["signature"][0]
    other_id = urlsplit(other).path.rpartition("/")[2]
    flipped = signature[:-1] + ("0" if signature[-1] != "0" else "1")
    for name, expires, signed in [
        (file_id, until, flipped),
        (file_id, str(int(until) + 1), signature),
        (other_id, until, signature),
        (file_id, f"0{until}", signature),
        (file_id, until, signature.upper()),
        (file_id, until, ""),
        (file_id, "", signature),
        (file_id, "9" * 30, signature),
        ("file-\x00", until, signature),
    ]:
        response = keeper.client.get(f"/v1/images/files/{name}", {"expires": expires, "signature": signed})
        assert response.status_code == 401, (name, expires, signed)
        assert response.json()["error"]["code"] == "invalid_signature"


def test_an_expired_link_leads_nowhere_and_its_picture_is_removed(
    keeper: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = generate(keeper, image_links=True).json()["data"][0]["url"]
    later = timezone.now() + timedelta(seconds=3_601)
    with monkeypatch.context() as patched:
        patched.setattr(timezone, "now", lambda: later)
        assert fetch(keeper, url)[0].status_code == 404
    assert retention.purge(timezone.now()) == 0
    assert retention.purge(later) == 1
    assert not FileChunk.objects.exists()
    assert fetch(keeper, url)[0].status_code == 404


def test_an_organization_that_keeps_nothing_gets_no_links(caller: Caller) -> None:
    response = generate(caller, image_links=True)
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["param"], error["code"]) == ("image_links", "zero_data_retention")
    assert nothing_happened(caller)
    assert not StoredFile.objects.exists()


def test_pictures_have_room_of_their_own_and_no_more(keeper: Caller, settings: Any) -> None:
    settings.IMAGE_LINK_BYTES_PER_ORGANIZATION = 1
    # Generated pictures are kept even without room: they are paid.
    assert generate(keeper, image_links=True).status_code == 200
    settle_all()
    response = generate(keeper, image_links=True)
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (400, "image_links", "storage_limit_exceeded")
    assert nothing_happened(keeper)
    assert StoredFile.objects.count() == 1
    assert generate(keeper).status_code == 200


def test_paid_pictures_are_told_as_they_are_where_they_cannot_be_kept(
    keeper: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OperationalError("the disk is full")

    monkeypatch.setattr(FileWriter, "begin", refuse)
    response = generate(keeper, image_links=True)
    assert (response.status_code, response["x-gateway-loss"]) == (200, "image_links")
    (image,) = response.json()["data"]
    assert size_of(image["b64_json"]) == (1024, 1024)
    assert settle_all() == 1
    assert RequestLog.objects.get().completion_tokens == 1_056


def test_a_picture_of_a_type_that_is_never_served_is_given_as_it_is(keeper: Caller) -> None:
    drawing = "data:image/svg+xml;base64,PHN2Zy8+"
    assert PictureStore().keep(policy.find_policy(keeper.token), drawing) == drawing
    assert not StoredFile.objects.exists()


def test_a_new_retention_level_counts_for_the_next_request(caller: Caller) -> None:
    assert generate(caller, image_links=True).status_code == 400
    # As another process would: this one has the key's policy in memory, as it was.
    Organization.objects.filter(pk=caller.organization_id).update(retention_level="retain")
    generation.bump(generation.organization_scope(caller.organization_id))
    response = generate(caller, image_links=True)
    assert response.status_code == 200, response.content
    assert StoredFile.objects.count() == 1
