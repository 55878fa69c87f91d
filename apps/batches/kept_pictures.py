"""Kept pictures: those that an images request wants as links, and the endpoint that a link leads to.

A picture is a stored file with a purpose that no list shows. Its link is signed and contains its expiry: it needs no
API key, and a client cannot forge one.
"""

from __future__ import annotations

import re
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db.models import Sum
from django.utils import timezone

from apps.batches import refusals
from apps.batches.access import insist_on_keeping
from apps.batches.file_endpoints import content_answer
from apps.batches.models import FilePurpose, StoredFile
from apps.batches.stored_files import FileOwner, FileWriter, name_of
from apps.gateway.access.policy import Policy
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.dialects.chat.openai import CLIENT as OPENAI
from apps.gateway.endpoints.answering import answer_with_errors
from apps.gateway.endpoints.image_links import FIELD
from apps.kernel.concurrency.native_thread_pool import offload
from apps.kernel.errors import InvalidRequest, NotFound, Unauthenticated
from apps.kernel.postgres import database
from apps.kernel.secrets.encryption import is_keyed_digest, keyed_digest
from apps.responses.public_ids import is_own_id

PATH: Final = "/v1/images/files/"
# Media types by the name of the stored file: no others are served.
_MEDIA_TYPES: Final = {f"image.{kind}": f"image/{kind}" for kind in ("png", "jpeg", "webp", "gif")}
_EXPIRY: Final = re.compile(r"[1-9]\d{0,10}")
_SIGNATURE: Final = re.compile(r"[0-9a-f]{64}")


class KeptPicture(NamedTuple):
    """A picture to serve."""

    row: StoredFile
    media_type: str
    expires_at: datetime


class PictureStore:
    """Keeps pictures for the images endpoints."""

    def check(self, policy: Policy) -> None:
        """Raise InvalidRequest where the organization keeps no content, or has kept too many pictures of late."""
        try:
            insist_on_keeping(policy)
        except InvalidRequest:
            raise refusals.no_links() from None
        most: int = settings.IMAGE_LINK_BYTES_PER_ORGANIZATION
        if database.read(partial(_bytes_kept, policy.organization_id)) >= most:
            raise refusals.no_room_for_pictures(most, FIELD)

    def keep(self, policy: Policy, data_url: str) -> str:
        """Keep a picture and return its link; one of a type that is never served is returned as it is. Raises
        DatabaseError."""
        head, _, data = data_url.partition(",")
        media_type = head.removeprefix("data:").partition(";")[0]
        name = next((name for name, known in _MEDIA_TYPES.items() if known == media_type), None)
        if name is None:
            return data_url
        now = timezone.now()
        expires_at = now + timedelta(seconds=settings.IMAGE_LINK_SECONDS)
        owner = FileOwner(policy.organization_id, policy.project_id)
        writer = FileWriter(owner, name, FilePurpose.IMAGE_LINK, now=now, expires_at=expires_at)
        writer.begin()
        writer.add(offload(len(data), partial(b64decode, data)))
        row = writer.close()
        until = str(int(expires_at.timestamp()))
        signature = keyed_digest(_signed(row.pk, until))
        return f"{settings.PUBLIC_URL}{PATH}{row.pk}?expires={until}&signature={signature}"


def find_picture(file_id: str, expires: str | None, signature: str | None) -> KeptPicture:
    """Return the picture of a link. Raises Unauthenticated for a wrong signature, NotFound for an expired link,
    DatabaseError."""
    if not (expires and signature and _EXPIRY.fullmatch(expires) and _SIGNATURE.fullmatch(signature)):
        raise _unsigned()
    # Before the database is read: guessed links cost no query.
    if not is_own_id(file_id) or not is_keyed_digest(_signed(file_id, expires), signature):
        raise _unsigned()
    expires_at, now = datetime.fromtimestamp(int(expires), UTC), timezone.now()
    if expires_at <= now:
        raise _nowhere()
    rows = StoredFile.objects.filter(pk=file_id, purpose=FilePurpose.IMAGE_LINK, is_complete=True, expires_at__gt=now)
    row = database.read(rows.first)
    media_type = None if row is None else _MEDIA_TYPES.get(name_of(row))
    if row is None or media_type is None:
        raise _nowhere()
    return KeptPicture(row, media_type, expires_at)


def _bytes_kept(organization_id: UUID) -> int:
    rows = StoredFile.objects.filter(organization_id=organization_id, purpose=FilePurpose.IMAGE_LINK)
    return int(rows.filter(expires_at__gt=timezone.now()).aggregate(size=Sum("size"))["size"] or 0)


def _signed(file_id: str, expires: str) -> bytes:
    """Return what a signature is of; nothing else that is signed with the same key begins like this."""
    return f"image link\n{file_id}\n{expires}".encode()


def _unsigned() -> Unauthenticated:
    return Unauthenticated("This link has no signature of this gateway's", code="invalid_signature")


def _nowhere() -> NotFound:
    return NotFound("The link to this image has expired, or the image was removed")


def read_picture(request: ClientRequest) -> ClientResponse:
    """Serve a picture as long as its link holds."""

    def read() -> ClientResponse:
        parameter = request.query_parameter
        picture = find_picture(request.parameters["file_id"], parameter("expires"), parameter("signature"))
        answer = content_answer(picture.row, picture.media_type, [("Content-Disposition", "inline")])
        left = int((picture.expires_at - timezone.now()).total_seconds())
        # Only the reader may cache it, no longer than the link holds.
        answer.cache_control = f"private, max-age={max(left, 0)}, immutable"
        return answer

    return answer_with_errors(request, "images_files", OPENAI, read)
