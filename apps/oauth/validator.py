"""The rules by which the OAuth library gives codes and tokens: its own, where they are strict enough, and ours.

Beside the library's rules: a code is locked while it is exchanged and a second exchange ends what the first gave; so it
is with refresh tokens; tokens belong to a consent and a resource. Every call runs in the caller's transaction, which
commits what a refusal revoked. Must never call out: descriptions of clients are fetched before (`client_documents`).
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
    """Reads a request for the library: forms, and JSON objects of texts."""

    def extract_body(self, request: HttpRequest) -> list[tuple[str, str]]:
        """Return the fields of the body; none of a body that is neither."""
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
    """Reads an authorization request: what it asks for stands in its query, and the page's form says nothing of it."""

    def extract_body(self, request: HttpRequest) -> list[tuple[str, str]]:
        """Return nothing."""
        return []


class Validator(OAuth2Validator):
    """What is asked before, and written when, a code or token is given."""

    def _load_application(self, client_id: str, request: Any) -> OAuthClient | None:
        """Return the client as it is known; its description is never fetched here."""
        request.client = OAuthClient.objects.filter(client_id=client_id).first()
        return cast("OAuthClient | None", request.client)

    def authenticate_client(self, request: Any, *args: Any, **kwargs: Any) -> bool:
        """Tell that no secret is right, however it is sent: no client has one."""
        return False

    def validate_code(
        self, client_id: str, code: str, client: OAuthClient, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        """Tell whether a code is this client's, fresh and in force; a second use ends what the first one gave."""
        # Two who bring one code at once come here one after the other.
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
        """Take a code as used. Raises InvalidGrantError where it is already."""
        unused = AuthorizationCode.objects.filter(code=code, application=request.client, used_at=None)
        if not unused.update(used_at=timezone.now()):
            raise InvalidGrantError(request=request)

    def validate_refresh_token(
        self, refresh_token: str, client: OAuthClient, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        """Tell whether a refresh token is this client's and unused; a second use ends the family."""
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
        """Take the one resource that a token is to be for, as it was consented to. Raises CustomOAuth2Error."""
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
    """Tell whether a consent may still give tokens: it was not revoked, and neither its key nor its person is off."""
    is_active = consent.user.is_active and consent.api_key.status == ApiKey.Status.ACTIVE
    return consent.revoked_at is None and is_active
