"""Authorization: reads a program's request in a person's browser, issues the code, and exchanges it for tokens.

Errors are shown to the person on a page. The browser is redirected to a program only after a click, so that this
address is no open redirect. A code is locked during its exchange, and a second exchange ends the tokens of the first;
the same holds for refresh tokens. Tokens belong to a consent and a resource.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any, Final, cast
from uuid import UUID

from django.http import HttpRequest, QueryDict
from django.utils import timezone
from oauth2_provider.exceptions import FatalClientError, OAuthToolkitError
from oauth2_provider.oauth2_backends import OAuthLibCore, get_oauthlib_core
from oauth2_provider.oauth2_validators import OAuth2Validator
from oauth2_provider.settings import oauth2_settings
from oauthlib.common import add_params_to_uri
from oauthlib.oauth2.rfc6749.errors import CustomOAuth2Error, InvalidGrantError, OAuth2Error

from apps.kernel.errors import InvalidRequest
from apps.kernel.rest.origin import address_of
from apps.keys.models import ApiKey
from apps.oauth.models import AccessToken, AuthorizationCode, Consent, OAuthClient, RefreshToken
from apps.oauth.redirects import MAX_LENGTH, redirect_problem
from apps.oauth.registration import MAX_ID, find_client
from apps.oauth.resources import SCOPES, issuer, read_resource
from apps.oauth.tokens import end_family
from apps.organizations.models import User


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


S256: Final = "S256"
_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}")
# Maximum parameters of a request, and characters of one.
_MAX_PARAMETERS, _MAX_PARAMETER = 30, 2_000
_LENGTHS: Final = {"client_id": MAX_ID, "redirect_uri": MAX_LENGTH, "resource": MAX_LENGTH}


class Unanswerable(InvalidRequest):
    """A request that cannot be answered to its program; `return_url` leads back to the program with the error if its
    address is valid; the person decides whether to follow it."""

    def __init__(self, message: str, *, param: str | None = None, return_url: str = "") -> None:
        super().__init__(message, param=param)
        self.return_url = return_url


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """A validated request; `redirect_uri` is registered by the client."""

    client: OAuthClient
    redirect_uri: str
    scopes: tuple[str, ...]
    resource: str
    credentials: Mapping[str, Any]

    @property
    def refusal_url(self) -> str:
        """The address for the browser if the person refuses."""
        words = [("error", "access_denied"), ("error_description", "The request was refused")]
        return _back(self.redirect_uri, words, self.credentials.get("state"))


def read_authorization_request(request: HttpRequest) -> AuthorizationRequest:
    """Return the request in a query. Raises Unanswerable, RateLimited.

    It may fetch the client's description: call it for signed-in users only, outside of a transaction.
    """
    query = request.GET
    check_parameters(query)
    client = find_client(query.get("client_id", ""), address_of(request))
    if client is None:
        raise Unanswerable("This program is unknown, or its description could not be read", param="client_id")
    if query.get("redirect_uri") and (problem := redirect_problem(query["redirect_uri"])):
        raise Unanswerable(f"The program's address is not valid: {problem}", param="redirect_uri")
    try:
        scopes, credentials = _library().validate_authorization_request(request)
    except FatalClientError as error:
        raise Unanswerable(f"The program's request is not valid: {_words_of(error.oauthlib_error)}") from error
    except OAuthToolkitError as error:
        raise _refused(error.oauthlib_error, _redirect_uri_of(query, client), query.get("state")) from error
    except ValueError as error:
        raise Unanswerable("The program's request cannot be read") from error
    redirect_uri = credentials["redirect_uri"] or client.default_redirect_uri
    try:
        _require_code(query)
        _require_s256(credentials)
        resource = _resource_of(query)
    except OAuth2Error as error:
        raise _refused(error, redirect_uri, query.get("state")) from error
    return AuthorizationRequest(client, redirect_uri, tuple(scopes), resource, credentials)


def issue_code(request: HttpRequest, asked: AuthorizationRequest, consent: Consent, user: User) -> str:
    """Return the redirect address with a code."""
    request.user = user
    credentials = {**asked.credentials, "consent": consent, "resource": [asked.resource]}
    scopes = list(asked.scopes)
    url, *_ = _library().create_authorization_response(request, scopes, credentials, allow=True)
    return str(url)


def check_parameters(query: QueryDict) -> None:
    """Check the size and form of a query. Raises Unanswerable naming the parameter."""
    if len(query) > _MAX_PARAMETERS:
        raise Unanswerable(f"The program's request has more than {_MAX_PARAMETERS} parameters")
    for name, values in query.lists():
        shown = name[:50] if name.isprintable() else "?"
        if len(values) > 1:
            raise Unanswerable(f"{shown} occurs more than once in the program's request", param=shown)
        most = _LENGTHS.get(name, _MAX_PARAMETER)
        if len(values[0]) > most or not (values[0].isprintable() and name.isprintable()):
            raise Unanswerable(f"{shown} must be at most {most} printable characters", param=shown)


def is_challenge(text: str) -> bool:
    """Return whether a text is an S256 challenge."""
    return _CHALLENGE.fullmatch(text) is not None


def _library() -> QueryReader:
    """Return the library's functions for a request's query."""
    return QueryReader(get_oauthlib_core().server)


def _require_code(query: QueryDict) -> None:
    """Raise OAuth2Error unless the answer is a code in the query: the library supports more."""
    if query.get("response_type") != "code":
        raise CustomOAuth2Error("unsupported_response_type", "response_type must be code")
    if query.get("response_mode", "query") != "query":
        raise CustomOAuth2Error("invalid_request", "response_mode must be query")


def _require_s256(credentials: Mapping[str, Any]) -> None:
    """Raise OAuth2Error for a missing challenge, or one of another method."""
    if credentials.get("code_challenge_method") != S256:
        raise CustomOAuth2Error("invalid_request", "code_challenge_method must be S256")
    if not is_challenge(credentials.get("code_challenge") or ""):
        raise CustomOAuth2Error("invalid_request", "code_challenge must be 43 characters of base64url")


def _resource_of(query: QueryDict) -> str:
    """Return the requested resource. Raises OAuth2Error for an unknown one."""
    found = read_resource(query.get("resource"))
    if found is None:
        raise CustomOAuth2Error("invalid_target", "There is no such resource here")
    return found


def _refused(error: OAuth2Error, redirect_uri: str, state: str | None) -> Unanswerable:
    words = _words_of(error)
    said = [("error", error.error), ("error_description", words)]
    return Unanswerable(
        f"The program's request cannot be granted: {words}", return_url=_back(redirect_uri, said, state)
    )


def _redirect_uri_of(query: QueryDict, client: OAuthClient) -> str:
    """Return the validated redirect URI."""
    return query.get("redirect_uri") or str(client.default_redirect_uri)


def _words_of(error: OAuth2Error) -> str:
    """Return the library's error message; it has none for a wrong scope."""
    if error.error == "invalid_scope":
        return f"scope must be of {', '.join(SCOPES)}"
    return str(error.description or error.error)[:200]


def _back(redirect_uri: str, said: list[tuple[str, str]], state: str | None) -> str:
    more = [("state", state)] if state else []
    return str(add_params_to_uri(redirect_uri, [*said, *more, ("iss", issuer())]))
