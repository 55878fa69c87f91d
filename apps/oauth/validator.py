"""Validator for the OAuth library: its own rules where they are strict enough, else ours.

Additional rules: a code is locked during its exchange, and a second exchange ends the tokens of the first; the same
holds for refresh tokens; tokens belong to a consent and a resource. Every call runs in the caller's transaction, which
commits revocations even if the request is refused. It makes no outside calls: descriptions of clients are fetched
before (`client_documents`).
"""

from __future__ import annotations

import json
from datetime import timedelta
from hashlib import sha256
from typing import Any, cast
from uuid import UUID

from django.http import HttpRequest
from django.utils import timezone
from oauth2_provider.oauth2_backends import OAuthLibCore
from oauth2_provider.oauth2_validators import OAuth2Validator
from oauth2_provider.settings import oauth2_settings
from oauthlib.oauth2.rfc6749.errors import CustomOAuth2Error, InvalidGrantError

from apps.keys.models import ApiKey
from apps.oauth.models import AccessToken, AuthorizationCode, Consent, OAuthClient, RefreshToken
from apps.oauth.resources import read_resource
from apps.oauth.token_families import end_family


class RequestReader(OAuthLibCore):
    """Reads a request for the library: forms and JSON objects with string values."""

    def extract_body(self, request: HttpRequest) -> list[tuple[str, str]]:
        """Return the fields of the body; none for another type of body."""
        if request.content_type != "application/json":
            return cast("list[tuple[str, str]]", super().extract_body(request))
        try:
            body = json.loads(request.body)
        except (ValueError, RecursionError):
            return []
        return (
            [(name, value) for name, value in body.items() if isinstance(value, str)] if isinstance(body, dict) else []
        )


class QueryReader(OAuthLibCore):
    """Reads an authorization request from its query and ignores the page's form."""

    def extract_body(self, request: HttpRequest) -> list[tuple[str, str]]:
        """Return nothing."""
        return []


class Validator(OAuth2Validator):
    """Checks and storage for issuing codes and tokens."""

    def _load_application(self, client_id: str, request: Any) -> OAuthClient | None:
        """Return the stored client; its description is never fetched here."""
        request.client = OAuthClient.objects.filter(client_id=client_id).first()
        return cast("OAuthClient | None", request.client)

    def authenticate_client(self, request: Any, *args: Any, **kwargs: Any) -> bool:
        """Return False: clients have no secret."""
        return False

    def validate_code(
        self, client_id: str, code: str, client: OAuthClient, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        """Return whether a code belongs to this client and is valid; a second use ends the tokens of the first."""
        # The lock serializes concurrent exchanges of one code.
        rows = AuthorizationCode.objects.select_for_update(of=("self",)).select_related(
            "consent__api_key", "consent__user", "user"
        )
        row = rows.filter(code=code, application=client).first()
        if row is None:
            return False
        if row.used_at is not None:
            end_family(row.token_family)
            return False
        if row.is_expired() or not _is_in_force(row.consent):
            return False
        request.user, request.scopes = row.user, row.scope.split()
        request.consent, request.token_family = row.consent, row.token_family
        return True

    def invalidate_authorization_code(self, client_id: str, code: str, request: Any, *args: Any, **kwargs: Any) -> None:
        """Mark a code as used. Raises InvalidGrantError if it already is."""
        unused = AuthorizationCode.objects.filter(code=code, application=request.client, used_at=None)
        if not unused.update(used_at=timezone.now()):
            raise InvalidGrantError(request=request)

    def validate_refresh_token(
        self, refresh_token: str, client: OAuthClient, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        """Return whether a refresh token belongs to this client and is unused; a second use ends the family."""
        digest = sha256(refresh_token.encode("utf-8", "surrogatepass")).hexdigest()
        rows = RefreshToken.objects.select_for_update(of=("self",)).select_related("consent__api_key", "consent__user")
        row = rows.filter(token_checksum=digest).first()
        if row is None or row.application_id != client.pk:
            return False
        if row.revoked is not None and row.token_family:
            end_family(row.token_family)
            return False
        if not _is_in_force(row.consent) or not super().validate_refresh_token(
            refresh_token, client, request, *args, **kwargs
        ):
            return False
        request.consent, request.token_family = row.consent, row.token_family
        return True

    def _check_and_set_request_resource(self, request: Any) -> None:
        """Set the token's resource to the consented one. Raises CustomOAuth2Error."""
        asked = getattr(request, "resource", None)
        if asked:
            found = read_resource(asked) if isinstance(asked, str) else None
            if found is None:
                raise CustomOAuth2Error("invalid_target", "There is no such resource here", request=request)
            request.resource = [found]
            if len([name for name, _ in request.decoded_body or () if name == "resource"]) > 1:
                raise CustomOAuth2Error("invalid_target", "A token is for one resource", request=request)
        super()._check_and_set_request_resource(request)

    def _create_authorization_code(self, request: Any, code: dict[str, str], expires: Any = None) -> AuthorizationCode:
        lives = timedelta(seconds=oauth2_settings.AUTHORIZATION_CODE_EXPIRE_SECONDS)
        return AuthorizationCode.objects.create(
            application=request.client,
            user=request.user,
            consent=request.consent,
            code=code["code"],
            expires=expires or timezone.now() + lives,
            redirect_uri=request.redirect_uri,
            scope=" ".join(request.scopes),
            code_challenge=request.code_challenge,
            code_challenge_method=request.code_challenge_method,
            resource=request.resource,
        )

    def _create_access_token(
        self, expires: Any, request: Any, token: dict[str, Any], source_refresh_token: RefreshToken | None = None
    ) -> AccessToken:
        row = AccessToken(
            user=request.user,
            application=request.client,
            consent=request.consent,
            token_family=request.token_family,
            scope=token["scope"],
            expires=expires,
            resource=request.resource,
            source_refresh_token=source_refresh_token,
        )
        self._set_token_value(row, token["access_token"])
        row.save()
        Consent.objects.filter(pk=request.consent.pk).update(last_used_at=timezone.now())
        return row

    def _create_refresh_token(
        self, request: Any, refresh_token_code: str, access_token: AccessToken, previous_refresh_token: Any
    ) -> RefreshToken:
        family: UUID = request.token_family
        row = RefreshToken(
            user=request.user,
            application=request.client,
            consent=request.consent,
            access_token=access_token,
            token_family=family,
            resource=request.resource,
        )
        self._set_token_value(row, refresh_token_code)
        row.save()
        return row


def _is_in_force(consent: Consent) -> bool:
    """Return whether a consent may issue tokens: it is not revoked, and its key and user are active."""
    is_active = consent.user.is_active and consent.api_key.status == ApiKey.Status.ACTIVE
    return consent.revoked_at is None and is_active
