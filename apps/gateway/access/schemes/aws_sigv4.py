"""AWS Signature Version 4 (SigV4), by botocore; or an API key of Bedrock's as a bearer token.

The secret is one word without a colon (the API key), or `ACCESS_KEY_ID:SECRET_ACCESS_KEY`, perhaps with
`:SESSION_TOKEN`; no part of either has colons of its own. A signing key is never sent, and a token never logged.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from urllib.parse import urlsplit

from apps.gateway.access.schemes import SignableRequest
from apps.gateway.failures import UpstreamFailure
from apps.keys.aws_signature import STORAGE, Place, Signable, signature

SERVICE = "bedrock"
DEFAULT_REGION = "us-east-1"

_ACCESS_KEY = re.compile(r"\w{16,128}", re.ASCII)
_IN_A_HEADER = re.compile(r"[!-~]+")
_REGION = re.compile(r"(?:^|\.)bedrock(?:-runtime)?(?:-fips)?\.([a-z]{2,}(?:-[a-z0-9]+)+)\.")


def authorize(secret: str, request: SignableRequest, now: datetime | None = None) -> dict[str, str]:
    """Return the headers that present the credential; `now` is the time of signing, in UTC.

    Raises UpstreamFailure for a secret that is neither.
    """
    if not _IN_A_HEADER.fullmatch(secret):
        raise _useless()
    if ":" not in secret:
        return {"Authorization": f"Bearer {secret}"}
    return _sign(secret, request, Place(SERVICE, region_of(urlsplit(request.url).hostname or "")), {}, now)


def authorize_storage(
    secret: str, request: SignableRequest, region: str, now: datetime | None = None
) -> dict[str, str]:
    """Return the headers that present access keys to object storage (S3).

    Raises UpstreamFailure for an API key of Bedrock's, which is of no use there.
    """
    content = {"X-Amz-Content-SHA256": sha256(request.body).hexdigest()}
    return _sign(secret, request, Place(STORAGE, region), content, now)


def service_secret(environ: Mapping[str, str]) -> str | None:
    """Return the secret that the environment's usual variables of AWS make up; None when they do not."""
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    access_key, signing_key, token = (environ.get(name, "").strip() for name in names)
    if not access_key or not signing_key:
        return None
    return f"{access_key}:{signing_key}:{token}" if token else f"{access_key}:{signing_key}"


def region_of(host: str) -> str:
    """Return the region that a host is in, as its name says; else the environment's."""
    if found := _REGION.search(host):
        return found[1]
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or DEFAULT_REGION


def _sign(
    secret: str, request: SignableRequest, place: Place, headers: dict[str, str], now: datetime | None
) -> dict[str, str]:
    """Return the headers and the `Authorization` that signs method, address, body, these headers, host and content
    type."""
    # Without a colon there is no signing key.
    access_key, signing_key, *token = secret.split(":") if ":" in secret else (secret, "")
    is_whole = _IN_A_HEADER.fullmatch(secret) and _ACCESS_KEY.fullmatch(access_key) and signing_key
    if not is_whole or len(token) > 1 or "" in token:
        raise _useless()
    headers = headers | {"X-Amz-Date": f"{now or datetime.now(UTC):%Y%m%dT%H%M%SZ}"}
    if token:
        headers["X-Amz-Security-Token"] = token[0]
    content_type = {name: value for name, value in request.headers.items() if name.lower() == "content-type"}
    signed = Signable(request.method, request.url, headers | content_type, request.body)
    return headers | {"Authorization": signature(signed, place, access_key, signing_key)}


def _useless() -> UpstreamFailure:
    return UpstreamFailure(
        "client_error",
        "the credential is neither an API key of Bedrock's nor ACCESS_KEY_ID:SECRET_ACCESS_KEY[:SESSION_TOKEN]",
        status=401,
    )
