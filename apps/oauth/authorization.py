"""Authorization requests: reads a program's request in a person's browser, and issues the code.

Errors are shown to the person on a page. The browser is redirected to a program only after a click, so that this
address is no open redirect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.http import HttpRequest, QueryDict
from oauth2_provider.exceptions import FatalClientError, OAuthToolkitError
from oauth2_provider.oauth2_backends import get_oauthlib_core
from oauthlib.common import add_params_to_uri
from oauthlib.oauth2.rfc6749.errors import CustomOAuth2Error, OAuth2Error

from apps.kernel.errors import InvalidRequest
from apps.kernel.rest.origin import address_of
from apps.oauth.client_documents import MAX_ID, find_client
from apps.oauth.models import Consent, OAuthClient
from apps.oauth.redirects import MAX_LENGTH, redirect_problem
from apps.oauth.resources import SCOPES, issuer, read_resource
from apps.oauth.validator import QueryReader
from apps.organizations.models import User

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
