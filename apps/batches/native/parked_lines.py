"""Parked lines: handed over to a provider's batch API under a hold, answered later, or put back to be run as others.

One transaction parks a line and holds its maximum cost in the ledger; an answer that comes twice counts once.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from functools import partial
from typing import Final

import msgspec
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from apps.batches.models import (
    Batch,
    BatchLine,
    LineOutcome,
    NativeJob,
    NativeJobStatus,
    NativeState,
)
from apps.batches.native.line_holds import FAR, give_back
from apps.billing import balances, ledger
from apps.billing.reservations import Note
from apps.gateway.upstream.batch_exchange import HandedOver
from apps.kernel.money import NANO, ZERO
from apps.kernel.secrets.encryption import UnreadableSecretError, decrypt_bytes, encrypt_bytes

# Lines of a job, and bytes of its requests: OpenAI takes 50,000 lines and 200 MB, Anthropic 100,000 and 256 MB. It is
# sent from memory, and so kept smaller.
MAX_JOB_LINES: Final = 50_000
MAX_JOB_BYTES: Final = 32 * 1024 * 1024
# Lines put back by one transaction.
MAX_TOGETHER: Final = 200


class NativeRequest(msgspec.Struct, frozen=True):
    """The request of a parked line to its provider, with the note of its admission; then the HTTP answer."""

    asked: HandedOver
    note: str
    status: int = 0
    answer: bytes = b""


class NativeAnswer(msgspec.Struct, frozen=True):
    """A provider's answer to a line: an HTTP status and a body."""

    status: int
    body: bytes


def park(line: BatchLine, owner: str, asked: HandedOver, note: Note) -> bool:
    """Put a line into a job, and hold what it may cost at most; tell whether it was still its owner's.

    Raises DatabaseError.
    """
    amount = Decimal(note.amount) / NANO
    of_credits = any(balances.is_of_credits(name) for name in note.holds)
    of_key = any(balances.USAGE in name for name in note.holds)
    with transaction.atomic():
        mine = BatchLine.objects.select_for_update().filter(
            pk=line.pk, lease_owner=owner, outcome=LineOutcome.OPEN, native_state=NativeState.NONE
        )
        if not mine.exists() or line.log_id is None:
            return False
        job = _gathering_job(line.batch, asked)
        sealed = _encrypt(line, NativeRequest(asked, note.payload))
        BatchLine.objects.filter(pk=line.pk).update(
            native_job=job,
            native_state=NativeState.PARKED,
            sealed_native=sealed,
            lease_owner="",
            lease_until=Now() + FAR,
            attempts=0,
        )
        NativeJob.objects.filter(pk=job.pk).update(lines=F("lines") + 1, size=F("size") + len(asked.body))
        changed = ledger.hold(
            line.log_id,
            line.batch.organization_id,
            line.batch.api_key_id,
            credits=amount if of_credits else ZERO,
            usage=amount if of_key else ZERO,
        )
        transaction.on_commit(partial(balances.publish, changed))
    return True


def _gathering_job(batch: Batch, asked: HandedOver) -> NativeJob:
    """Return the job of a batch that takes in such lines just now, with room for one more."""
    group = {
        "batch": batch,
        "format": asked.format,
        "provider_id": asked.provider_id,
        "model_name": asked.model_name,
        "path": asked.path,
        "credential": asked.credential,
        "is_own_key": asked.is_own_key,
        **msgspec.structs.asdict(asked.place),
        "status": NativeJobStatus.GATHERING,
    }
    rows = NativeJob.objects.select_for_update().filter(**group, lines__lt=MAX_JOB_LINES)
    job = rows.filter(size__lte=MAX_JOB_BYTES - len(asked.body)).order_by("created_at").first()
    return job or NativeJob.objects.create(**group, created_at=Now(), next_look_at=Now())


def request_of(line: BatchLine) -> NativeRequest:
    """Return the request of a parked line to its provider. Raises UnreadableSecretError."""
    data = decrypt_bytes(line.sealed_native, line.batch.project_id, _place(line))
    return msgspec.json.decode(data, type=NativeRequest)


def find_answered(line: BatchLine) -> NativeRequest | None:
    """Return a line's request and its answer from a provider's batch API; None without an answer.

    Raises UnreadableSecretError.
    """
    return request_of(line) if line.native_state == NativeState.ANSWERED else None


def store_answers(job: NativeJob, answers: Mapping[int, NativeAnswer]) -> int:
    """Store answers to lines of a job, by position; return how many were new. Raises DatabaseError."""
    kept_lines = list[BatchLine]()
    with transaction.atomic():
        rows = BatchLine.objects.select_for_update(of=("self",)).select_related("batch")
        lines = list(rows.filter(native_job=job, native_state=NativeState.PARKED, position__in=list(answers)))
        for line in lines:
            try:
                asked, answer = request_of(line), answers[line.position]
            except UnreadableSecretError:
                # Encrypted with a key that is gone: put back with the unanswered lines, it gets an error that says so.
                continue
            kept = msgspec.structs.replace(
                asked,
                asked=msgspec.structs.replace(asked.asked, body=b""),
                status=answer.status,
                answer=answer.body,
            )
            line.sealed_native, line.native_state, line.lease_until = _encrypt(line, kept), NativeState.ANSWERED, Now()
            kept_lines.append(line)
        BatchLine.objects.bulk_update(kept_lines, ["sealed_native", "native_state", "lease_until"])
    return len(kept_lines)


def put_back_some(job: NativeJob) -> int:
    """Return a piece of a job's unanswered lines to the usual way, and release their holds; return how many.

    Raises DatabaseError.
    """
    with transaction.atomic():
        rows = BatchLine.objects.select_for_update().filter(native_job=job, native_state=NativeState.PARKED)
        held = dict(rows.order_by("position").values_list("pk", "log_id")[:MAX_TOGETHER])
        BatchLine.objects.filter(pk__in=held).update(
            native_state=NativeState.DECLINED, sealed_native="", lease_until=Now(), log_id=None
        )
        give_back(log_id for log_id in held.values() if log_id is not None)
    return len(held)


def _encrypt(line: BatchLine, request: NativeRequest) -> str:
    return encrypt_bytes(msgspec.json.encode(request), line.batch.project_id, _place(line))


def _place(line: BatchLine) -> str:
    return f"batch:{line.batch_id}:{line.position}:native"
