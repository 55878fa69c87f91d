"""Uploads in parts: OpenAI's own client makes files of them, bounded, and nothing of one that ends is left."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import openai as sdk
import pytest
from django.utils import timezone
from openai import OpenAI

from apps.batches import retention
from apps.batches.models import FileChunk, FilePurpose, StoredFile, Upload
from apps.batches.stored_files import CHUNK, chunks_of
from tests.batches.batch_work import line, lines_in, run, work_all
from tests.batches.batch_work import upload as upload_lines
from tests.responses.conftest import Clients, keep, neighbour, stranger
from tests.support.upstream import Caller

UNKNOWN = "upload_" + "0" * 48


def begin(client: OpenAI, size: int, **fields: Any) -> Any:
    given = {"bytes": size, "filename": "lines.jsonl", "mime_type": "application/jsonl", "purpose": "batch", **fields}
    return client.uploads.create(**given)


def add(client: OpenAI, upload_id: str, data: bytes) -> str:
    return client.uploads.parts.create(upload_id, data=data).id


def left() -> tuple[int, int]:
    """Return how many files, parts included, and chunks there are."""
    return StoredFile.objects.count(), FileChunk.objects.count()


def refused(ask: Any, *arguments: Any, **fields: Any) -> tuple[int, str | None, str]:
    """Return with which status, parameter and words something is refused."""
    with pytest.raises(sdk.APIStatusError) as error:
        ask(*arguments, **fields)
    body: Any = error.value.body
    return error.value.status_code, body["param"], body["message"]


def test_a_file_is_made_of_parts_in_the_order_asked_for(openai: OpenAI) -> None:
    first, second, third = os.urandom(CHUNK + 5) + b"\n", b"short\n", os.urandom(2 * CHUNK)
    made = begin(openai, len(first + second + third))
    assert (made.object, made.status, made.filename, made.purpose) == ("upload", "pending", "lines.jsonl", "batch")
    assert (made.bytes, made.expires_at - made.created_at, made.file) == (3 * CHUNK + 12, 3600, None)
    part = openai.uploads.parts.create(made.id, data=third)
    assert (part.object, part.upload_id) == ("upload.part", made.id)
    ids = [add(openai, made.id, first), add(openai, made.id, second), part.id]
    assert list(openai.files.list()) == []
    whole = first + second + third
    done = openai.uploads.complete(made.id, part_ids=ids, md5=hashlib.md5(whole, usedforsecurity=False).hexdigest())
    assert done.status == "completed"
    assert done.file is not None
    assert (done.file.bytes, done.file.filename, done.file.purpose) == (len(whole), "lines.jsonl", "batch")
    assert openai.files.retrieve(done.file.id) == done.file
    assert openai.files.content(done.file.id).content == whole
    row = StoredFile.objects.get()
    assert (row.lines, FileChunk.objects.count()) == (whole.count(b"\n") + 1, 5)
    for start in (0, 1, CHUNK - 1, CHUNK, CHUNK + 6, CHUNK + 7, CHUNK + 12, 2 * CHUNK + 12, len(whole) - 1, len(whole)):
        assert b"".join(chunks_of(row, start)) == whole[start:], start
    assert openai.files.delete(done.file.id).deleted
    assert left() == (0, 0)


def test_the_clients_own_way_makes_a_batch_input_that_is_answered(openai: OpenAI) -> None:
    lines = [line(f"line {number}", "x" * 900) for number in range(30)]
    content = b"\n".join(json.dumps(one).encode() for one in lines)
    done = openai.uploads.upload_file_chunked(
        file=content,
        filename="lines.jsonl",
        bytes=len(content),
        mime_type="application/jsonl",
        purpose="batch",
        part_size=7_000,
        md5=hashlib.md5(content, usedforsecurity=False).hexdigest(),
    )
    assert done.file is not None
    batch = openai.batches.create(input_file_id=done.file.id, endpoint="/v1/chat/completions", completion_window="24h")
    work_all()
    batch = openai.batches.retrieve(batch.id)
    assert (batch.status, batch.request_counts.completed) == ("completed", 30)  # type: ignore[union-attr] # a completed batch has counts
    answered = [answer["custom_id"] for answer in lines_in(openai, batch.output_file_id)]
    assert answered == [one["custom_id"] for one in lines]


def test_completing_once_more_says_the_same_and_other_parts_are_refused(openai: OpenAI) -> None:
    made = begin(openai, 4)
    ids = [add(openai, made.id, b"ab"), add(openai, made.id, b"cd")]
    done = openai.uploads.complete(made.id, part_ids=ids)
    assert openai.uploads.complete(made.id, part_ids=ids) == done
    over = (400, None, f"Upload {made.id} is completed: this can only be done while it is pending")
    assert refused(openai.uploads.complete, made.id, part_ids=ids[::-1]) == over
    assert refused(openai.uploads.parts.create, made.id, data=b"ef") == over
    assert refused(openai.uploads.cancel, made.id) == over
    assert (left(), openai.files.content(str(done.file and done.file.id)).content) == ((1, 2), b"abcd")


def test_parts_that_are_not_named_go(openai: OpenAI) -> None:
    made = begin(openai, 2)
    add(openai, made.id, b"lost")
    done = openai.uploads.complete(made.id, part_ids=[add(openai, made.id, b"ab")])
    assert (left(), openai.files.content(str(done.file and done.file.id)).content) == ((1, 1), b"ab")


def test_what_cannot_be_completed_stays_pending(openai: OpenAI) -> None:
    made, other = begin(openai, 4), begin(openai, 2)
    part, foreign = add(openai, made.id, b"ab"), add(openai, other.id, b"cd")
    before = left()
    wrong: list[tuple[dict[str, Any], tuple[str, str]]] = [
        ({"part_ids": [part]}, ("part_ids", "The parts have 2 bytes together, and the upload was created with 4")),
        ({"part_ids": [part, foreign]}, ("part_ids", f"part_ids names {foreign}, which is no part of this upload")),
        ({"part_ids": [part, part]}, ("part_ids", "part_ids names a part twice")),
        ({"part_ids": []}, ("part_ids", "part_ids must be an array of 1 to 500 ids of parts")),
        ({"part_ids": [part], "md5": "x"}, ("md5", "md5 must be 32 hexadecimal digits")),
    ]
    for fields, said in wrong:
        assert refused(openai.uploads.complete, made.id, **fields) == (400, *said)
    second = add(openai, made.id, b"xy")
    answer = refused(openai.uploads.complete, made.id, part_ids=[part, second], md5="0" * 32)
    assert answer == (400, "md5", "md5 is not that of the parts")
    assert left() == (before[0] + 1, before[1] + 1)
    assert openai.uploads.complete(made.id, part_ids=[part, second]).status == "completed"


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"bytes": 0}, 400, "bytes"),
        ({"bytes": True}, 400, "bytes"),
        ({"bytes": 200 * 1024**2 + 1}, 413, "bytes"),
        ({"bytes": 32 * 1024**2 + 1, "purpose": "user_data"}, 413, "bytes"),
        ({"filename": ""}, 400, "filename"),
        ({"filename": "a\nb"}, 400, "filename"),
        ({"mime_type": None}, 400, "mime_type"),
        ({"purpose": "upload_part"}, 400, "purpose"),
        ({"expires_after": {"anchor": "created_at", "seconds": 1}}, 400, "expires_after.seconds"),
        ({"expires_after": {"anchor": "now", "seconds": 3600}}, 400, "expires_after.anchor"),
        ({"extra_body": {"parts": 3}}, 400, "parts"),
    ],
)
def test_wrong_fields_are_refused_by_name(openai: OpenAI, fields: dict[str, Any], status: int, param: str) -> None:
    assert refused(begin, openai, **{"size": fields.pop("bytes", 5), **fields})[:2] == (status, param)
    assert (left(), Upload.objects.count()) == ((0, 0), 0)


def test_the_file_is_kept_as_long_as_asked_for(openai: OpenAI) -> None:
    made = begin(openai, 2, expires_after={"anchor": "created_at", "seconds": 7200})
    done = openai.uploads.complete(made.id, part_ids=[add(openai, made.id, b"ab")])
    assert done.file is not None
    assert (done.file.expires_at or 0) - done.file.created_at == 7200


def test_a_cancelled_upload_leaves_nothing(openai: OpenAI) -> None:
    made = begin(openai, 4)
    part = add(openai, made.id, b"ab")
    assert (openai.uploads.cancel(made.id).status, left()) == ("cancelled", (0, 0))
    assert openai.uploads.cancel(made.id).status == "cancelled"
    over = (400, None, f"Upload {made.id} is cancelled: this can only be done while it is pending")
    assert refused(openai.uploads.parts.create, made.id, data=b"ef") == over
    assert refused(openai.uploads.complete, made.id, part_ids=[part]) == over
    assert left() == (0, 0)


def test_an_upload_expires_with_its_parts_and_its_room(openai: OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    made = begin(openai, 4)
    part = add(openai, made.id, b"ab")
    later = timezone.now() + timedelta(hours=1, seconds=1)
    with monkeypatch.context() as patched:
        patched.setattr(timezone, "now", lambda: later)
        over = (400, None, f"Upload {made.id} is expired: this can only be done while it is pending")
        assert refused(openai.uploads.parts.create, made.id, data=b"cd") == over
        assert refused(openai.uploads.complete, made.id, part_ids=[part]) == over
    assert retention.purge(later) == 2
    assert (left(), Upload.objects.count()) == ((0, 0), 1)
    assert retention.purge(later + timedelta(days=1)) == 1
    assert refused(openai.uploads.cancel, made.id) == (404, None, f"No such Upload object: {made.id}")


def test_room_is_taken_when_an_upload_is_created(openai: OpenAI, settings: Any) -> None:
    settings.FILE_BYTES_PER_PROJECT = 10
    made = begin(openai, 8)
    assert refused(begin, openai, 3)[:2] == (400, "file")
    add(openai, made.id, b"12345678")
    # Parts take their upload's room, and no other.
    upload_lines(openai, ["{}"])
    assert refused(upload_lines, openai, ["1"])[:2] == (400, "file")
    openai.uploads.cancel(made.id)
    upload_lines(openai, ["12345678"])


def test_parts_are_bounded_in_bytes_and_number(openai: OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apps.batches.uploads.MAX_PARTS", 2)
    monkeypatch.setattr("apps.batches.file_endpoints.MAX_FILE_PART", CHUNK)
    made = begin(openai, 5)
    assert refused(openai.uploads.parts.create, made.id, data=bytes(CHUNK + 1)) == (
        413,
        "data",
        f"data is larger than {CHUNK} bytes",
    )
    assert refused(openai.uploads.parts.create, made.id, data=b"")[:2] == (400, "data")
    assert left() == (1, 0)
    add(openai, made.id, bytes(CHUNK))
    assert refused(openai.uploads.parts.create, made.id, data=bytes(20))[:2] == (400, "data")
    assert left() == (2, 1)
    add(openai, made.id, b"abcde")
    assert refused(openai.uploads.parts.create, made.id, data=b"abcde")[:2] == (400, "data")
    assert left() == (3, 2)


def test_anothers_upload_cannot_be_told_from_what_never_was(keeper: Caller, openai: OpenAI, clients: Clients) -> None:
    made = begin(openai, 2)
    part = add(openai, made.id, b"ab")

    def answers(client: OpenAI, upload_id: str) -> Sequence[tuple[int, str | None, str]]:
        told = [
            refused(client.uploads.parts.create, upload_id, data=b"xy"),
            refused(client.uploads.complete, upload_id, part_ids=[part]),
            refused(client.uploads.cancel, upload_id),
        ]
        return [(status, param, words.replace(upload_id, "ID")) for status, param, words in told]

    for token in (neighbour(keeper), stranger(keeper)):
        client = clients(token)
        assert answers(client, made.id) == answers(client, UNKNOWN) == [(404, None, "No such Upload object: ID")] * 3
    assert openai.uploads.complete(made.id, part_ids=[part]).status == "completed"


def test_parts_are_no_files(openai: OpenAI) -> None:
    made = begin(openai, 2)
    part = add(openai, made.id, b"ab")
    assert StoredFile.objects.get(pk=part).purpose == FilePurpose.UPLOAD_PART
    assert list(openai.files.list()) == []
    for ask in (openai.files.retrieve, openai.files.content, openai.files.delete):
        assert refused(ask, part)[0] == 404
    new = {"endpoint": "/v1/chat/completions", "completion_window": "24h"}
    assert refused(openai.batches.create, input_file_id=part, **new)[:2] == (404, "input_file_id")


def test_an_organization_that_keeps_nothing_has_no_uploads(keeper: Caller, openai: OpenAI) -> None:
    made = begin(openai, 2)
    keep(keeper, "none")
    assert "Zero Data Retention" in refused(begin, openai, 2)[2]
    assert "Zero Data Retention" in refused(openai.uploads.parts.create, made.id, data=b"ab")[2]
    assert retention.purge(timezone.now()) == 2
    assert (left(), Upload.objects.count()) == ((0, 0), 0)


def test_chunks_open_in_no_other_place(openai: OpenAI) -> None:
    made = begin(openai, 4)
    ids = [add(openai, made.id, b"ab"), add(openai, made.id, b"cd")]
    done = openai.uploads.complete(made.id, part_ids=ids)
    first, second = FileChunk.objects.order_by("position")
    first.sealed_content, second.sealed_content = second.sealed_content, first.sealed_content
    FileChunk.objects.bulk_update([first, second], ["sealed_content"])
    assert refused(openai.files.content, str(done.file and done.file.id))[0] == 500


def test_a_line_that_is_larger_than_a_body_fails_its_batch(openai: OpenAI, settings: Any) -> None:
    settings.BODY_LIMIT = 2_000
    batch = run(openai, [line("a"), line("b", "x" * 70_000), line("c")])
    assert batch.status == "failed"
    assert [(error.code, error.line) for error in batch.errors.data] == [("invalid_json_line", 2)]
    assert batch.errors.data[0].message == f"This line is larger than {2_000 + 64 * 1024} bytes"
