"""Registration of clients (RFC 7591), validated field by field.

Clients are public: they get no secret, and prove themselves with the code's verifier and their redirect URI. Names are
unverified, so the consent page also shows the redirect address.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from rest_framework import serializers

from apps.kernel.errors import InvalidRequest
from apps.kernel.rest.serializers import TextField
from apps.oauth.models import MAX_NAME, OAuthClient
from apps.oauth.redirects import MAX_LENGTH, MAX_URIS, redirect_problem

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
    client_name = TextField(max_length=MAX_NAME, required=False, allow_blank=True, default="")
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
