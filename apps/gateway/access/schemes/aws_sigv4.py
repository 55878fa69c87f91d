"""AWS Signature Version 4: sign each request with a pair of keys, or present an API key of Bedrock's as a bearer token.

The secret is one word without a colon (the API key), or `ACCESS_KEY_ID:SECRET_ACCESS_KEY`, perhaps with
`:SESSION_TOKEN`; no part of either has colons of its own. Must never send a key that signs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from hmac import digest
from posixpath import normpath
from urllib.parse import quote, urlsplit

from apps.gateway.access.schemes import SignableRequest
from apps.gateway.failures import UpstreamFailure

SERVICE = "bedrock"
DEFAULT_REGION = "us-east-1"

_ALGORITHM = "AWS4-HMAC-SHA256"
_ACCESS_KEY = re.compile(r"\w{16,128}", re.ASCII)
_IN_A_HEADER = re.compile(r"[!-~]+")
_REGION = re.compile(r"(?:^|\.)bedrock-runtime(?:-fips)?\.([a-z]{2,}(?:-[a-z0-9]+)+)\.")
_PORTS = {"http": 80, "https": 443}


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
    return headers | {"Authorization": _signed(request, headers, access_key, signing_key)}


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


def _signed(request: SignableRequest, headers: dict[str, str], access_key: str, signing_key: str) -> str:
    """Return the signature over method, address, body, the given headers, host and content type."""
    address = urlsplit(request.url)
    host = address.hostname or ""
    default = address.port is None or address.port == _PORTS.get(address.scheme)
    signed = {name.lower(): value for name, value in headers.items()}
    signed["host"] = host if default else f"{host}:{address.port}"
    signed |= {
        name.lower(): " ".join(value.split())
        for name, value in request.headers.items()
        if name.lower() == "content-type"
    }
    names = sorted(signed)
    canonical = "\n".join(
        (
            request.method.upper(),
            quote(_normal(address.path), safe="/~"),
            "&".join("=".join(pair) for pair in sorted(_pairs(address.query))),
            *(f"{name}:{signed[name]}" for name in names),
            "",
            ";".join(names),
            sha256(request.body).hexdigest(),
        )
    )
    moment = headers["X-Amz-Date"]
    scope = f"{moment[:8]}/{region_of(host)}/{SERVICE}/aws4_request"
    key = f"AWS4{signing_key}".encode()
    for word in scope.split("/"):
        key = digest(key, word.encode(), "sha256")
    to_sign = "\n".join((_ALGORITHM, moment, scope, sha256(canonical.encode()).hexdigest()))
    signature = digest(key, to_sign.encode(), "sha256").hex()
    return f"{_ALGORITHM} Credential={access_key}/{scope}, SignedHeaders={';'.join(names)}, Signature={signature}"


def _normal(path: str) -> str:
    """Return a path without empty or dotted segments. What is quoted in it already is quoted once more by whoever
    signs: every service but S3 wants that."""
    normal = "/" + normpath("/" + path).lstrip("/")
    return f"{normal}/" if path.endswith("/") and normal != "/" else normal


def _pairs(query: str) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (pair.partition("=") for pair in query.split("&"))] if query else []


def _useless() -> UpstreamFailure:
    return UpstreamFailure(
        "client_error",
        "the credential is neither an API key of Bedrock's nor ACCESS_KEY_ID:SECRET_ACCESS_KEY[:SESSION_TOKEN]",
        status=401,
    )
