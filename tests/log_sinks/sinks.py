"""Log sinks and rows for them, made for tests."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import transaction

from apps.destinations.credentials import WebhookSecret, encrypt_credentials
from apps.log_sinks import queue
from apps.log_sinks.kinds import BucketKeys, Credentials, OtlpKeys
from apps.log_sinks.models import LogSink
from apps.logs import writer
from apps.logs.entry import Entry
from tests.logs.entries import entry
from tests.support.cast import World

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ACCESS_KEY, SIGNING_KEY = "AKIAEXAMPLEEXAMPLE01", "a-signing-key-that-nobody-sends"
PUBLIC_KEY, SECRET_KEY = "pk-lf-public-1", "sk-lf-very-secret-1"
CREDENTIALS: dict[str, Credentials] = {
    "webhook": WebhookSecret(SECRET),
    "s3": BucketKeys(ACCESS_KEY, SIGNING_KEY),
    "otlp": OtlpKeys(PUBLIC_KEY, SECRET_KEY),
}


def make_sink(world: World, kind: str, url: str, **columns: Any) -> LogSink:
    """Return a sink of Acme's."""
    sink = LogSink.objects.create(
        organization=world.acme,
        name=columns.pop("name", kind),
        kind=kind,
        url=url,
        encrypted_credentials=encrypt_credentials(CREDENTIALS[kind]),
        masked_credentials=CREDENTIALS[kind].masked,
        **columns,
    )
    sink.refresh_from_db()
    return sink


def log_row(world: World, organization: Any = None, **fields: Any) -> Entry:
    """Write a row of Acme's log, as the settler does."""
    owner = organization or world.acme
    record = entry(organization_id=owner.id, project_id=world.project.id, **fields)
    write_rows([record])
    return record


def write_rows(records: list[Entry]) -> set[UUID]:
    """Write rows as the settler does: the log and the queue in one transaction."""
    with transaction.atomic():
        written = writer.write(records)
        queue.enqueue([(one.id, one.organization_id) for one in records if one.id in written])
    return written
