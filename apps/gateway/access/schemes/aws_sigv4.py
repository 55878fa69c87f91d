"""AWS Signature Version 4 (SigV4), by botocore; or an API key of Bedrock's as a bearer token.

The secret is one word without a colon (the API key), or `ACCESS_KEY_ID:SECRET_ACCESS_KEY`, perhaps with
`:SESSION_TOKEN`; no part of either has colons of its own. A signing key is never sent, and a token never logged.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import urlsplit

from apps.gateway.access.schemes import SignableRequest
from apps.gateway.failures import UpstreamFailure
from apps.keys.aws_signature import Place, Signable, signature

SERVICE = "bedrock"
DEFAULT_REGION = "us-east-1"

_ACCESS_KEY = re.compile(r"\w{16,128}", re.ASCII)
_IN_A_HEADER = re.compile(r"[!-~]+")
_REGION = re.compile(r"(?:^|\.)bedrock-runtime(?:-fips)?\.([a-z]{2,}(?:-[a-z0-9]+)+)\.")


def authorize(secret: str, request: SignableRequest, now: datetime | None = None) -> dict[str, str]:
    """Return the headers that present the credential; `now` is the time of signing, in UTC.

    Raises UpstreamFailure for a secret that is neither.
    """
    if not _IN_A_HEADER.fullmatch(secret):
        raise _useless()
    if ":" not in secret:
        return {"Authorization": f"Bearer {secret}"}
    access_key, signing_key, *token = secret.split(":")
    if len(token) > 1 or not _ACCESS_KEY.fullmatch(access_key) or not signing_key or "" in token:
        raise _useless()
    headers = {"X-Amz-Date": f"{now or datetime.now(UTC):%Y%m%dT%H%M%SZ}"}
    if token:
        headers["X-Amz-Security-Token"] = token[0]
    return headers | {"Authorization": _signature(request, headers, access_key, signing_key)}


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


def _signature(request: SignableRequest, headers: dict[str, str], access_key: str, signing_key: str) -> str:
    """Return the `Authorization` that signs method, address, body, the given headers, host and content type."""
    content_type = {name: value for name, value in request.headers.items() if name.lower() == "content-type"}
    signed = Signable(request.method, request.url, headers | content_type, request.body)
    place = Place(SERVICE, region_of(urlsplit(request.url).hostname or ""))
    return signature(signed, place, access_key, signing_key)


def _useless() -> UpstreamFailure:
    return UpstreamFailure(
        "client_error",
        "the credential is neither an API key of Bedrock's nor ACCESS_KEY_ID:SECRET_ACCESS_KEY[:SESSION_TOKEN]",
        status=401,
    )
