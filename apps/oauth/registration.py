"""Clients: registration (RFC 7591), validated field by field, and clients that a document describes (CIMD).

Clients are public: they get no secret, and prove themselves with the code's verifier and their redirect URI. Names are
unverified, so the consent page also shows the redirect address. Documents are cached as long as `Cache-Control` allows.
They are fetched for signed-in users only, outside of transactions, without following redirects.
"""

from __future__ import annotations

import json
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final

import gevent
import requests
from django.conf import settings
from oauth2_provider import cimd
from rest_framework import serializers
from urllib3.exceptions import HTTPError

from apps.kernel.errors import InvalidRequest
from apps.kernel.postgres import database
from apps.kernel.rest.serializers import NameField, TextField
from apps.keys.ssrf_guard import UnsafeAddressError, resolve_safe_address
from apps.oauth.models import MAX_NAME, OAuthClient
from apps.oauth.redirects import MAX_LENGTH, MAX_URIS, redirect_problem
from apps.organizations.credentials.attempt_rate_limiter import AttemptLimit, count_attempt

BAD_URI: Final = "invalid_redirect_uri"
BAD_METADATA: Final = "invalid_client_metadata"
GRANTS: Final = ("authorization_code", "refresh_token")
# Characters of fields that are accepted and ignored.
_MAX_IGNORED: Final = 2_000
_MAX_FIELDS: Final = 60


class RedirectUriField(TextField):
    """A redirect URI."""

    def to_internal_value(self, data: Any) -> str:
        """Return it. Raises ValidationError."""
        uri = super().to_internal_value(data)
        if problem := redirect_problem(uri):
            raise serializers.ValidationError(problem)
        return uri


class RegistrationShape(serializers.Serializer[Any]):
    """Body of `POST /oauth/register`. Other fields of RFC 7591 are accepted and ignored."""

    redirect_uris = serializers.ListField(
        child=RedirectUriField(max_length=MAX_LENGTH), min_length=1, max_length=MAX_URIS
    )
    client_name = NameField(max_length=MAX_NAME, required=False, allow_blank=True, default="")
    grant_types = serializers.ListField(
        child=TextField(max_length=100), required=False, min_length=1, max_length=10, default=lambda: list(GRANTS)
    )
    response_types = serializers.ListField(
        child=TextField(max_length=100), required=False, min_length=1, max_length=10, default=lambda: ["code"]
    )
    token_endpoint_auth_method = serializers.ChoiceField(
        ["none", "client_secret_basic", "client_secret_post"],
        required=False,
        help_text="The answer is always `none`: clients get no secret",
    )
    scope = TextField(max_length=_MAX_IGNORED, required=False, allow_blank=True)

    def validate_client_name(self, value: str) -> str:
        """Refuse unprintable characters. Raises ValidationError."""
        if not value.isprintable():
            raise serializers.ValidationError("Must be printable characters")
        return value

    def validate_grant_types(self, value: list[str]) -> list[str]:
        """Require authorization codes. Raises ValidationError."""
        if "authorization_code" not in value:
            raise serializers.ValidationError("Must have authorization_code")
        return [one for one in GRANTS if one in value]

    def validate_response_types(self, value: list[str]) -> list[str]:
        """Require authorization codes. Raises ValidationError."""
        if "code" not in value:
            raise serializers.ValidationError("Must have code")
        return ["code"]


def register_client(said: Any) -> dict[str, Any]:
    """Register a program; return the answer. Raises InvalidRequest naming the field."""
    if not isinstance(said, dict) or len(said) > _MAX_FIELDS:
        raise InvalidRequest(f"Must be a JSON object of at most {_MAX_FIELDS} fields", code=BAD_METADATA)
    shape = RegistrationShape(data=said)
    if not shape.is_valid():
        raise _invalid(shape.errors)
    fields = shape.validated_data
    client = OAuthClient.objects.create(
        name=fields["client_name"],
        redirect_uris=" ".join(fields["redirect_uris"]),
        authorization_grant_type=OAuthClient.GRANT_AUTHORIZATION_CODE,
        registration_source=OAuthClient.RegistrationSource.DCR,
    )
    return {
        "client_id": client.client_id,
        "client_id_issued_at": int(datetime.now(UTC).timestamp()),
        "client_name": client.name,
        "redirect_uris": fields["redirect_uris"],
        "grant_types": fields["grant_types"],
        "response_types": fields["response_types"],
        "token_endpoint_auth_method": "none",
    }


def _invalid(errors: Any) -> InvalidRequest:
    """Return the first error, with its field."""
    name, found = next(iter(errors.items()))
    while isinstance(found, dict | list) and found:
        found = next(iter(found.values())) if isinstance(found, dict) else found[0]
    code = BAD_URI if name == "redirect_uris" else BAD_METADATA
    return InvalidRequest(f"{name}: {found}", code=code, param=str(name))


# Timeout for the whole document in seconds, and its maximum bytes.
_TIMEOUT: Final = 5.0
_MAX_SIZE: Final = 16 * 1024
# Fetches of unknown descriptions per client address.
DESCRIBED_PER_ADDRESS: Final = AttemptLimit("oauth-describe:address", 20, 600)
# Characters of a client's id.
MAX_ID: Final = 255
# The client address that a fetch counts for; each may have a few name lookups at a time.
_asking: ContextVar[str] = ContextVar("oauth_asking", default="")


def find_client(client_id: str, address: str) -> OAuthClient | None:
    """Return the client; one whose id is an address is fetched when it is unknown or its copy is old.

    If descriptions are switched off (`OAUTH_CLIENT_DOCUMENTS`), such clients are unknown. `address` is the person's,
    which may fetch only so many unknown ones: raises RateLimited.
    """
    if not 0 < len(client_id) <= MAX_ID or not client_id.isprintable():
        return None
    if not settings.OAUTH_CLIENT_DOCUMENTS and cimd.is_cimd_client_id(client_id):
        return None
    known = OAuthClient.objects.filter(client_id=client_id).first()
    if known is None and cimd.is_cimd_client_id(client_id):
        # Do not let anyone use the gateway as a proxy.
        count_attempt((DESCRIBED_PER_ADDRESS, address))
    _asking.set(f"oauth:{address}")
    found = cimd.resolve_cimd_application(client_id, None) if known is None else cimd.refresh_if_stale(known, None)
    return found if isinstance(found, OAuthClient) else None


class GuardedFetcher:
    """Fetches a description for the library, which validates and stores it."""

    def fetch(self, client_id: str) -> tuple[dict[str, Any], int]:
        """Return the document, and its lifetime in seconds. Raises CIMDError."""
        # A client's address needs https and a path, and has neither user nor fragment.
        cimd._validate_client_id_url(client_id)
        database.release_connection()
        try:
            # A total timeout: a server may send a byte now and then.
            with (
                gevent.Timeout(_TIMEOUT, requests.Timeout()),
                resolve_safe_address(client_id, _asking.get()).session() as session,
                session.get(
                    client_id,
                    headers={"Accept": "application/json"},
                    timeout=_TIMEOUT,
                    allow_redirects=False,
                    stream=True,
                ) as answer,
            ):
                return _read(answer), cimd._effective_max_age(answer.headers.get("Cache-Control"))
        except UnsafeAddressError as error:
            raise cimd.CIMDError(f"client_id URL is not fetched: {error}") from error
        except (requests.RequestException, HTTPError) as error:
            raise cimd.CIMDError("client_id document could not be fetched") from error


def _read(answer: requests.Response) -> dict[str, Any]:
    """Return the JSON object of an answer. Raises CIMDError for other content and too large answers."""
    media_type = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if answer.status_code != requests.codes.ok or not media_type.endswith(("/json", "+json")):
        raise cimd.CIMDError(f"client_id document was answered with {answer.status_code} and {media_type[:50]!r}")
    body = answer.raw.read(_MAX_SIZE + 1, decode_content=True)
    if len(body) > _MAX_SIZE:
        raise cimd.CIMDError(f"client_id document is larger than {_MAX_SIZE} bytes")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise cimd.CIMDError("client_id document is not JSON") from error
    if not isinstance(document, dict):
        raise cimd.CIMDError("client_id document is not a JSON object")
    return document
