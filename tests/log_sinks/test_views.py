"""`/log-sinks`: registering, changing, trying and removing sinks; their metrics, and the rotation of their keys."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from apps.destinations.credentials import decrypt_credentials
from apps.kernel.secrets.encryption import decrypt
from apps.log_sinks import actions, metrics
from apps.log_sinks.access import SINKS
from apps.log_sinks.hooks import rotate
from apps.log_sinks.kinds import BucketKeys, Credentials
from apps.log_sinks.models import LogSink
from apps.organizations.models import AuditEntry
from tests.log_sinks.sinks import PUBLIC_KEY, SECRET, SECRET_KEY, SIGNING_KEY, log_row, make_sink
from tests.support.cast import Caller, World, signed_in
from tests.support.sink_receiver import Receiver

ADDRESS = "https://93.184.215.14/hook"
BUCKET = {
    "kind": "s3",
    "secret": ...,
    "bucket": "acme-logs",
    "region": "eu-central-1",
    "accessKeyId": "AKIAEXAMPLE",
    "secretAccessKey": SIGNING_KEY,
}
OTLP = {"kind": "otlp", "secret": ..., "publicKey": PUBLIC_KEY, "secretKey": SECRET_KEY}


@pytest.fixture
def adam(world: World) -> Caller:
    return signed_in(world.adam)


def create(caller: Caller, world: World, **changes: Any) -> Any:
    body = {
        "organizationId": str(world.acme.id),
        "name": "archive",
        "kind": "webhook",
        "url": ADDRESS,
        "secret": SECRET,
        **changes,
    }
    return caller.post("/log-sinks", {name: value for name, value in body.items() if value is not ...})


def test_a_sink_is_kept_sealed_and_shown_masked(world: World, adam: Caller) -> None:
    response = create(adam, world, format="json", includeContent=True)
    assert response.status_code == 200, response.content
    row = LogSink.objects.get()
    shown = response.json()["logSink"]
    assert adam.get("/log-sinks", organizationId=str(world.acme.id)).json() == {"logSinks": [shown]}
    moments = {"createdAt", "updatedAt", "nextAttemptAt"}
    assert {name: value for name, value in shown.items() if name not in moments} == {
        "id": str(row.id),
        "organizationId": str(world.acme.id),
        "name": "archive",
        "kind": "webhook",
        "url": ADDRESS,
        "options": {"format": "json"},
        "includeContent": True,
        "maskedCredentials": "...LaSw",
        "status": "active",
        "failures": 0,
        "failingSince": None,
        "lastError": "",
        "lastErrorAt": None,
        "lastDeliveredAt": None,
        "deliveredRows": 0,
        "droppedRows": 0,
    }
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT row_to_json(it)::text, encode(encrypted_credentials, 'escape') FROM log_sinks_logsink it"
        )
        stored = str(cursor.fetchall()) + str(list(AuditEntry.objects.values()))
    assert SECRET not in stored
    entry = AuditEntry.objects.get(action="log_sink.create")
    assert (entry.resource_id, entry.details["url"], entry.actor_email) == (str(row.id), ADDRESS, "adam@example.com")


@pytest.mark.parametrize(
    ("changes", "path", "message"),
    [
        ({"kind": "ftp"}, "kind", "Must be one of: webhook, s3, otlp"),
        ({"url": "http://127.0.0.1:9000/"}, "url", "Must not lead to a private, loopback or link-local address"),
        ({"url": f"{ADDRESS}#a"}, "url", "Must be a URL without a fragment"),
        ({"secret": "short"}, "secret", "Must be whsec_ followed by 24 to 64 bytes in base64"),
        ({"secret": ...}, "secret", "Required"),
        ({"bucket": "acme"}, "bucket", "Not a field of the kind webhook"),
        ({**BUCKET, "bucket": "No/Bucket"}, "bucket", "Must be the name of a bucket"),
        ({**BUCKET, "region": ...}, "region", "Required"),
        (
            {**BUCKET, "prefix": "../x/"},
            "prefix",
            "Must be empty, or words of letters, digits and ._=- that each end with a slash",
        ),
        ({**BUCKET, "url": f"{ADDRESS}?a=1"}, "url", "Must be a URL without a query"),
        ({**OTLP, "publicKey": "a:b"}, "publicKey", "Must be without a colon"),
        ({**OTLP, "secretKey": "a\nb"}, "secretKey", "Must be printable ASCII characters without spaces"),
    ],
)
def test_a_bad_field_is_named(world: World, adam: Caller, changes: dict[str, Any], path: str, message: str) -> None:
    response = create(adam, world, **changes)
    assert (response.status_code, response.json()["issues"]) == (400, [{"path": path, "message": message}])
    assert not LogSink.objects.exists()


def test_a_name_is_unique_and_sinks_are_limited(world: World, adam: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    first = create(adam, world, **BUCKET).json()["logSink"]["id"]
    issue = {"path": "name", "message": "Another log sink has this name"}
    assert create(adam, world).json()["issues"] == [issue]
    second = create(adam, world, **OTLP, name="other").json()["logSink"]["id"]
    renamed = adam.send("PATCH", f"/log-sinks/{second}", {"name": "archive"})
    assert (renamed.status_code, renamed.json()["issues"]) == (400, [issue])
    monkeypatch.setattr(actions, "MAX_SINKS", 2)
    assert create(adam, world, name="third").json()["message"] == "Maximum 2 log sinks per organization"
    assert adam.send("DELETE", f"/log-sinks/{first}", {}).status_code == 200
    assert create(adam, world, name="archive").status_code == 200


def test_a_sink_is_changed_and_removed(world: World, adam: Caller) -> None:
    path = f"/log-sinks/{create(adam, world, **BUCKET).json()['logSink']['id']}"
    LogSink.objects.update(status="failed", failures=9, failing_since=timezone.now())
    keys = {"accessKeyId": "AKIAOTHER", "secretAccessKey": "another"}
    changed = adam.send("PATCH", path, {"status": "active", **keys}).json()["logSink"]
    assert (changed["status"], changed["failures"], changed["failingSince"]) == ("active", 0, None)
    assert changed["maskedCredentials"] == "AKIAOTHER"
    row = LogSink.objects.get()
    assert decrypt_credentials(bytes(row.encrypted_credentials), Credentials) == BucketKeys("AKIAOTHER", "another")
    assert AuditEntry.objects.get(action="log_sink.update").details["credentials"] == "replaced"
    before = LogSink.objects.values().get()
    for body, issue in (
        ({"accessKeyId": "AKIA3"}, {"path": "secretAccessKey", "message": "Required"}),
        ({"secret": SECRET, **keys}, {"path": "secret", "message": "Not a field of the kind s3"}),
        ({}, {"path": "status", "message": "Required"}),
    ):
        refused = adam.send("PATCH", path, body)
        assert (refused.status_code, refused.json()["issues"]) == (400, [issue])
    assert LogSink.objects.values().get() == before
    assert adam.send("DELETE", path, {}).json() == {"message": "Log sink deleted"}
    row.refresh_from_db()
    assert (row.status, bytes(row.encrypted_credentials), row.masked_credentials) == ("deleted", b"", "")
    assert adam.send("PATCH", path, {"status": "active"}).status_code == 404
    assert adam.get("/log-sinks", organizationId=str(world.acme.id)).json() == {"logSinks": []}


def test_a_sample_is_sent_when_asked(world: World, adam: Caller, receiver: Receiver) -> None:
    sink = make_sink(world, "webhook", f"{receiver.origin}/hook")
    answer = adam.post(f"/log-sinks/{sink.pk}/test")
    assert (answer.status_code, answer.json()) == (200, {"message": "The sink took a sample"})
    receiver.status, receiver.answer = 401, f"who is {SECRET}?".encode()
    refused = adam.post(f"/log-sinks/{sink.pk}/test")
    assert (refused.status_code, refused.json()["message"]) == (400, "It answered 401: who is ...?")
    assert len(receiver.taken) == 2
    assert signed_in(world.dana).post(f"/log-sinks/{sink.pk}/test").status_code == 403
    assert len(receiver.taken) == 2


def test_metrics_tell_what_waits(world: World, receiver: Receiver) -> None:
    sink = make_sink(world, "webhook", f"{receiver.origin}/hook", failures=2)
    make_sink(world, "otlp", f"{receiver.origin}/traces", status="failed")
    log_row(world)
    now = timezone.now()
    metrics.take_down(now)
    told = metrics.exposition().decode()
    for line in (
        'gateway_log_sink_waiting_rows{kind="webhook"} 1.0',
        'gateway_log_sinks_active{kind="webhook"} 1.0',
        'gateway_log_sinks_failing{kind="webhook"} 1.0',
        'gateway_log_sinks_disabled{kind="otlp"} 1.0',
        'gateway_log_sink_waiting_rows{kind="otlp"} 0.0',
    ):
        assert line in told.splitlines()
    assert 'gateway_log_sink_lag_seconds{kind="webhook"}' in told
    SINKS.delete(sink)
    LogSink.objects.all().delete()
    metrics.take_down(now)
    assert "{kind=" not in metrics.exposition().decode()


def test_credentials_are_sealed_anew(world: World, settings: Any) -> None:
    from cryptography.fernet import Fernet

    make_sink(world, "webhook", ADDRESS)
    new, old = Fernet.generate_key().decode(), settings.ENCRYPTION_KEYS
    settings.ENCRYPTION_KEYS = [new, *old]
    assert (rotate().count, rotate().unreadable) == (1, [])
    settings.ENCRYPTION_KEYS = [new]
    assert SECRET in decrypt(bytes(LogSink.objects.get().encrypted_credentials)).decode()
