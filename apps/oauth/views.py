"""OAuth endpoints for programs: metadata, registration, tokens, revocation, and exchanging a code for an API key.

They use no cookies, so web pages of any origin may call them. The validator checks tokens. Grant types other than
`GRANTS` are refused before the library is called.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final

from django.conf import settings
from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods
from oauth2_provider.oauth2_backends import get_oauthlib_core
from rest_framework import serializers

from apps.kernel.errors import InvalidRequest, NotFound
from apps.kernel.rest.envelopes import InvalidFields, Issue
from apps.kernel.rest.origin import address_of
from apps.kernel.rest.serializers import TextField
from apps.oauth.actions import exchange_key_code
from apps.oauth.authorization import S256
from apps.oauth.registration import BAD_METADATA, GRANTS, register_client
from apps.oauth.resources import SCOPES, issuer, read_resource
from apps.organizations.credentials.attempt_rate_limiter import AttemptLimit, count_attempt
from apps.organizations.journal import audit

REGISTER_PER_ADDRESS: Final = AttemptLimit("oauth-register:address", 20, 600)
# Many programs may share an address, and many people a program (its id is its description's address).
TOKEN_PER_ADDRESS: Final = AttemptLimit("oauth-token:address", 120)
TOKEN_PER_CLIENT_AND_ADDRESS: Final = AttemptLimit("oauth-token:client-and-address", 60)
# Bytes of a body, and fields of a form.
_MAX_BODY: Final = 64 * 1024
_MAX_FIELDS: Final = 30
# Characters of a field of the token endpoint.
_MAX_FIELD: Final = 2_000
_PREFLIGHT: Final = {
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": "content-type, mcp-protocol-version",
    "Access-Control-Max-Age": "7200",
}
_View = Callable[..., HttpResponse]


def _for_programs(*methods: str) -> Callable[[_View], _View]:
    """Make a view callable by programs, also from web pages; cookies are not used."""

    def decorate(view: _View) -> _View:
        @require_http_methods([*methods, "OPTIONS"])
        @wraps(view)
        def serve(request: HttpRequest, **names: Any) -> HttpResponse:
            response = HttpResponse(status=204, headers=_PREFLIGHT)
            if request.method != "OPTIONS":
                with audit.acting():
                    response = view(request, **names)
            response["Access-Control-Allow-Origin"] = "*"
            return response

        return csrf_exempt(serve) if "POST" in methods else serve

    return decorate


@_for_programs("GET", "HEAD")
def server_metadata(request: HttpRequest, path: str = "") -> HttpResponse:
    """Describe the authorization server (RFC 8414); some clients append their resource's path."""
    if path and read_resource(f"{issuer()}/{path}") is None:
        raise NotFound("There is no such resource here")
    return JsonResponse(
        {
            "issuer": issuer(),
            "authorization_endpoint": f"{issuer()}/oauth/authorize",
            "token_endpoint": f"{issuer()}/oauth/token",
            "registration_endpoint": f"{issuer()}/oauth/register",
            "revocation_endpoint": f"{issuer()}/oauth/revoke",
            "scopes_supported": list(SCOPES),
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": list(GRANTS),
            "token_endpoint_auth_methods_supported": ["none"],
            "revocation_endpoint_auth_methods_supported": ["none"],
            "code_challenge_methods_supported": [S256],
            "authorization_response_iss_parameter_supported": True,
            "client_id_metadata_document_supported": settings.OAUTH_CLIENT_DOCUMENTS,
            "service_documentation": f"{issuer()}/docs/api",
        }
    )


@_for_programs("GET", "HEAD")
def resource_metadata(request: HttpRequest, path: str = "") -> HttpResponse:
    """Describe a protected resource (RFC 9728): `/mcp`, or the path after the well-known prefix."""
    resource = read_resource(f"{issuer()}/{path}" if path else None)
    if resource is None:
        raise NotFound("There is no such resource here")
    return JsonResponse(
        {
            "resource": resource,
            "authorization_servers": [issuer()],
            "scopes_supported": list(SCOPES),
            "bearer_methods_supported": ["header"],
            "resource_name": "Model gateway",
            "resource_documentation": f"{issuer()}/docs/api",
        }
    )


@_for_programs("POST")
def register(request: HttpRequest) -> HttpResponse:
    """Register a program (RFC 7591)."""
    count_attempt((REGISTER_PER_ADDRESS, address_of(request)))
    return JsonResponse(register_client(_json_of(request, BAD_METADATA)), status=201)


@_for_programs("POST")
def token(request: HttpRequest) -> HttpResponse:
    """Exchange a code or a refresh token for an access token and the next refresh token."""
    fields = _count_and_read(request)
    if fields.get("grant_type") not in GRANTS:
        raise InvalidRequest(
            f"grant_type must be {' or '.join(GRANTS)}", code="unsupported_grant_type", param="grant_type"
        )
    # Refusals are returned, not raised, so that their revocations are committed.
    with transaction.atomic():
        _, headers, body, status = get_oauthlib_core().create_token_response(request)
    return _answer(headers, body, status)


@_for_programs("POST")
def revoke(request: HttpRequest) -> HttpResponse:
    """Revoke a refresh token and its access token, or vice versa (RFC 7009)."""
    _count_and_read(request)
    with transaction.atomic():
        _, headers, body, status = get_oauthlib_core().create_revocation_response(request)
    return _answer(headers, body, status)


class KeyExchangeShape(serializers.Serializer[Any]):
    """Body of `POST /api/v1/auth/keys`."""

    code = TextField(max_length=200)
    code_verifier = TextField(max_length=128)
    code_challenge_method = serializers.ChoiceField([S256], default=S256)


@_for_programs("POST")
def exchange_key(request: HttpRequest) -> HttpResponse:
    """Exchange the code from the person's browser for an API key."""
    count_attempt((TOKEN_PER_ADDRESS, address_of(request)))
    shape = KeyExchangeShape(data=_json_of(request, "invalid_json"))
    if not shape.is_valid():
        raise InvalidFields([Issue(name, str(found[0])) for name, found in shape.errors.items()])
    fields = shape.validated_data
    created, user = exchange_key_code(code=fields["code"], verifier=fields["code_verifier"])
    return JsonResponse({"key": created.token, "user_id": str(user.id)})


def _answer(headers: Mapping[str, str], body: str | None, status: int) -> HttpResponse:
    """Return the library's answer, which already forbids caching."""
    return HttpResponse(body or "", status=status, headers={"Content-Type": "application/json", **headers})


def _json_of(request: HttpRequest, code: str) -> Any:
    """Return the JSON of the body. Raises InvalidRequest."""
    if len(request.body) > _MAX_BODY:
        raise InvalidRequest(f"The body must be at most {_MAX_BODY} bytes", code=code)
    try:
        return json.loads(request.body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("The body must be JSON", code=code) from error


def _count_and_read(request: HttpRequest) -> dict[str, str]:
    """Count a token request by its address and by its client there; return its fields.

    Raises RateLimited, and InvalidRequest with the field for an invalid body.
    """
    address = address_of(request)
    count_attempt((TOKEN_PER_ADDRESS, address))
    fields = _read_fields(request)
    count_attempt((TOKEN_PER_CLIENT_AND_ADDRESS, f"{address}\n{fields.get('client_id', '')}"))
    return fields


def _read_fields(request: HttpRequest) -> dict[str, str]:
    """Return the fields of a form or a JSON object. Raises InvalidRequest with the wrong field."""
    if request.content_type == "application/json":
        said = _json_of(request, "invalid_request")
        if not isinstance(said, dict):
            raise InvalidRequest("The body must be a JSON object", code="invalid_request")
        fields = {name: str(value) for name, value in said.items()}
    else:
        fields = request.POST.dict()
        if any(len(values) > 1 for _, values in request.POST.lists()):
            raise InvalidRequest("No field may occur more than once", code="invalid_request")
    if len(fields) > _MAX_FIELDS:
        raise InvalidRequest(f"There must be at most {_MAX_FIELDS} fields", code="invalid_request")
    for name, value in fields.items():
        if len(value) > _MAX_FIELD or not (value.isprintable() and name.isprintable()):
            shown = name[:50] if name.isprintable() else "?"
            words = f"{shown} must be at most {_MAX_FIELD} printable characters"
            raise InvalidRequest(words, code="invalid_request", param=shown)
    return fields
