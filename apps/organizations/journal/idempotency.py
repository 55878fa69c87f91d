"""Idempotency: a POST repeated with the same `Idempotency-Key` gets the first answer again.

The answer is stored in the transaction that does the work, so both are saved or neither, even if the process dies.
Refusals are not stored. Answers are stored encrypted, because one of them shows an API key.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.models import QuerySet
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from apps.kernel.errors import InvalidRequest
from apps.kernel.postgres.rows import delete_in_pieces
from apps.kernel.rest.envelopes import InvalidFields, Issue
from apps.kernel.rest.serializers import ExactJSONRenderer
from apps.kernel.secrets.encryption import UnreadableSecretError, decrypt, encrypt
from apps.organizations.models import IdempotentAnswer

HEADER, REPLAYED = "Idempotency-Key", "idempotent-replayed"
KEPT = timedelta(hours=24)
_KEY = re.compile(r"[ -~]{1,255}")


@dataclass(frozen=True, slots=True)
class Claim:
    """A request with its key: the user, the route, and a fingerprint of its content."""

    user_id: UUID
    route: str
    key: str
    fingerprint: bytes


def claim_of(request: Request, user_id: UUID) -> Claim | None:
    """Return the claim of a request with a key. Raises InvalidFields for an invalid key."""
    key = request.headers.get(HEADER)
    if key is None:
        return None
    if not _KEY.fullmatch(key):
        raise InvalidFields([Issue(HEADER, "Must be 1 to 255 printable ASCII characters")])
    said = json.dumps([request.get_full_path(), request.data], sort_keys=True, default=str)
    fingerprint = hmac.digest(settings.SECRET_KEY.encode(), said.encode(), "sha256")
    route = request.resolver_match.route if request.resolver_match else request.path
    return Claim(user_id, route, key, fingerprint)


def find_answer(claim: Claim) -> HttpResponse | None:
    """Return the stored answer. Raises InvalidRequest (422) if the key was used for another request."""
    row = _rows(claim).filter(created_at__gt=timezone.now() - KEPT).first()
    if row is None:
        return None
    if not hmac.compare_digest(bytes(row.fingerprint), claim.fingerprint):
        raise InvalidRequest(
            "This Idempotency-Key was used for another request; use a new one",
            status=422,
            code="idempotency_key_reused",
        )
    try:
        body = decrypt(bytes(row.sealed_body))
    except UnreadableSecretError as error:
        raise InvalidRequest(
            "This request was already done, and its answer can no longer be read", status=409, code="already_done"
        ) from error
    return HttpResponse(body, status=row.status, content_type="application/json", headers={REPLAYED: "true"})


def answer_once(claim: Claim, work: Callable[[], HttpResponseBase]) -> HttpResponseBase:
    """Do the work and store its answer, or return the stored answer.

    Raises InvalidRequest: 409 while a request with the same key runs, 422 if the key was used for another request.
    """
    with transaction.atomic():
        if not _lock(claim):
            raise InvalidRequest(
                "A request with this Idempotency-Key is in progress",
                status=409,
                code="idempotency_key_in_use",
                retry_after=1,
            )
        if (known := find_answer(claim)) is not None:
            return known
        answer = work()
        if isinstance(answer, Response) and answer.status_code < 400:
            _store(claim, answer)
        return answer


def sweep() -> int:
    """Delete expired answers; return how many."""
    old = IdempotentAnswer.objects.filter(created_at__lte=timezone.now() - KEPT)
    return delete_in_pieces(old)


def _rows(claim: Claim) -> QuerySet[IdempotentAnswer]:
    return IdempotentAnswer.objects.filter(user_id=claim.user_id, route=claim.route, key=claim.key)


def _store(claim: Claim, answer: Response) -> None:
    fields = {
        "fingerprint": claim.fingerprint,
        "status": answer.status_code,
        "sealed_body": encrypt(ExactJSONRenderer().render(answer.data)),
        "created_at": timezone.now(),
    }
    IdempotentAnswer.objects.update_or_create(user_id=claim.user_id, route=claim.route, key=claim.key, defaults=fields)


def _lock(claim: Claim) -> bool:
    """Lock the key until the transaction ends; False if another request holds it."""
    digest = sha256(f"{claim.user_id}\n{claim.route}\n{claim.key}".encode()).digest()
    number = int.from_bytes(digest[:8], "big", signed=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [number])
        (taken,) = cursor.fetchone()
    return bool(taken)
