"""Exception handling: turns exceptions into error responses, or pages for browsers, in the words of the API.

Django's handlers (400, 403, 404, 500) answer for requests that no view answered. Messages of unexpected exceptions are
never shown. Suspicious requests (unknown hosts, forged forms, unreadable bodies) are counted by kind; a client may send
many of them, so each kind is logged at most once a second, without a traceback.
"""

from __future__ import annotations

import math
import re
import sys
import time
from collections import Counter as Counts
from collections.abc import Iterator
from typing import Any, Final

import structlog
from django.conf import settings
from django.core.exceptions import (
    BadRequest,
    DisallowedHost,
    PermissionDenied,
    RequestDataTooBig,
    SuspiciousOperation,
    TooManyFieldsSent,
    TooManyFilesSent,
)
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.http.multipartparser import MultiPartParserError
from django.template.loader import render_to_string
from django.utils.translation import gettext, gettext_noop, override
from prometheus_client import Counter
from rest_framework import exceptions
from rest_framework.response import Response

from apps.kernel import errors
from apps.kernel.errors import ApiError
from apps.kernel.pages.languages import page_language, translated
from apps.kernel.rest.envelopes import Family, InvalidFields, Issue
from apps.kernel.rest.routes import family_of_client, route_table
from apps.kernel.zero_series import begin_at_zero

# Framework message -> our own; varying parts are kept.
_SENTENCES: Final[tuple[tuple[str, str], ...]] = (
    (r"This field is required\.|No file was submitted\.", "Required"),
    (r"This field (?:may not|cannot) be blank\.", "Must not be blank"),
    (r"This field (?:may not|cannot) be null\.", "Must not be null"),
    (r"Not a valid string\.", "Must be a string"),
    (
        r"Ensure this (?:field has no more than|value has at most) (\d+) characters?(?: \(it has \d+\))?\.",
        r"Must be at most \1 characters long",
    ),
    (
        r"Ensure this (?:field|value) has at least (\d+) characters?(?: \(it has \d+\))?\.",
        r"Must be at least \1 characters long",
    ),
    (r"Ensure this field has no more than (\d+) elements\.", r"Must hold at most \1 items"),
    (r"Ensure this field has at least (\d+) elements\.", r"Must hold at least \1 items"),
    (r"Ensure this value is greater than or equal to (\S+)\.", r"Must be at least \1"),
    (r"Ensure this value is less than or equal to (\S+)\.", r"Must be at most \1"),
    (r'Expected a list of items but got type "\w+"\.', "Must be an array"),
    (r'Expected a dictionary of items but got type "\w+"\.', "Must be an object"),
    (r"Invalid data\. Expected a dictionary, but got \w+\.", "Must be an object"),
    (r"This (?:list|dictionary|selection) may not be empty\.", "Must not be empty"),
    (r"A valid (?:big)?integer is required\.", "Must be a whole number"),
    (r"A valid number is required\.", "Must be a number"),
    (r"String value too large\.|Integer value too large to convert to float", "Must be a shorter number"),
    (r"Ensure that there are no more than (\d+) digits in total\.", r"Must have at most \1 digits"),
    (r"Ensure that there are no more than (\d+) decimal places\.", r"Must have at most \1 digits after the point"),
    (
        r"Ensure that there are no more than (\d+) digits before the decimal point\.",
        r"Must have at most \1 digits before the point",
    ),
    (r"Must be a valid boolean\.", "Must be true or false"),
    (r"Must be a valid UUID\.", "Must be a UUID"),
    (r'"(.*)" is not a valid(?: path)? choice\.', "Must be one of the allowed values"),
    (r"Enter a valid email address\.", "Must be an e-mail address"),
    (r"Enter a valid URL\.", "Must be a URL"),
    (r"Enter a valid IPv4 or IPv6 address\.", "Must be an IP address"),
    (r"This value does not match the required pattern\.", "Must have the documented format"),
    (r"Value must be valid JSON\.", "Must be JSON"),
    (r"(?:Date|Datetime|Time|Duration) has wrong format\. Use one of these formats instead: .*", "Must be in ISO 8601"),
    (r"Expected a date but got a datetime\.", "Must be a day, without a time"),
    (r"Expected a datetime but got a date\.", "Must be a time, not a day alone"),
    (r"Datetime value out of range\.", "Must be a time within the calendar"),
    (r"Null characters are not allowed\.", "Must not have null characters"),
    (r"Surrogate characters are not allowed: (U\+\w+)\.", r"Must not have half of a character (\1)"),
)
_READ: Final = [(re.compile(theirs, re.DOTALL), ours) for theirs, ours in _SENTENCES]


def reword(sentence: str) -> str:
    """Return our version of a framework's message; other texts unchanged."""
    for theirs, ours in _READ:
        if found := theirs.fullmatch(sentence):
            return found.expand(ours)
    return sentence


# Title and advice.
_WORDS: Final[dict[int, tuple[str, str]]] = {
    400: (gettext_noop("That did not work"), gettext_noop("Go back, reload the page and try again.")),
    401: (gettext_noop("Sign in first"), gettext_noop("Your session has ended, or you are not signed in.")),
    403: (
        gettext_noop("You have no access"),
        gettext_noop("Ask an owner of the organization for access, or sign in with another account."),
    ),
    404: (gettext_noop("Page not found"), gettext_noop("The link may be old, or its target was deleted.")),
    405: (gettext_noop("That did not work"), gettext_noop("Go back, reload the page and try again.")),
    413: (gettext_noop("Too large"), gettext_noop("Send less at once.")),
    429: (gettext_noop("Too many attempts"), gettext_noop("Wait a little, then try again.")),
    503: (
        gettext_noop("Back in a moment"),
        gettext_noop("The service is busy or under maintenance. Reload the page shortly."),
    ),
}
# The same for error codes.
_WORDS_BY_CODE: Final[dict[str, tuple[str, str]]] = {
    "form_expired": (
        gettext_noop("This page is out of date"),
        gettext_noop("Nothing was changed. Go back and send the form again; if it is refused again, reload it first."),
    ),
}
# The same in the admin.
_ADMIN: Final = "/admin/"
_WORDS_IN_ADMIN: Final[dict[int, tuple[str, str]]] = {
    403: (
        "You have no access",
        "Ask a superuser to add you to a group with the permission.",
    ),
    500: ("Something went wrong", "The log of this process has the traceback. Nothing of the form was saved."),
}
_OTHER: Final = (
    gettext_noop("Something went wrong"),
    gettext_noop("The error was logged. Try again; if it persists, contact the operator."),
)
# The page needs only its styles.
_POLICY: Final = (
    "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def show_error(request: HttpRequest, error: ApiError) -> HttpResponse:
    """Return the page of an error, with its status."""
    in_admin = request.path.startswith(_ADMIN)
    words = _WORDS_BY_CODE.get(error.code) or (_WORDS_IN_ADMIN.get(error.status) if in_admin else None)
    title, advice = words or _WORDS.get(error.status, _OTHER)
    with override(settings.LANGUAGE_CODE) if in_admin else page_language(request):
        context = {
            "title": gettext(title),
            "advice": gettext(advice),
            "message": translated(error.message),
            "status": error.status,
            "admin": in_admin,
        }
        # Without context processors: the page must work while a store is down.
        page = HttpResponse(render_to_string("error.html", context), status=error.status)
    page["Content-Security-Policy"] = _POLICY
    return page


log = structlog.get_logger(__name__)

NO_ROUTE = "There is nothing at this path"
BAD_METHOD = "This path does not take this method"
# A header of all of Anthropic's clients.
ANTHROPIC_VERSION = "anthropic-version"
# Characters of the framework's messages, which quote the request.
_MAX_SAID = 200


def answer(request: HttpRequest, error: ApiError) -> HttpResponse:
    """Return the error in the format of the request's family of clients."""
    family = family_of_request(request)
    if is_for_people(request, family):
        response: HttpResponse = show_error(request, error)
    else:
        response = JsonResponse(family.body_of(error), status=error.status)
    for name, value in _headers_of(error).items():
        response[name] = value
    return response


def answer_exception(exception: Exception, context: dict[str, Any]) -> Response | None:
    """Answer for the REST framework; None leaves an unexpected exception to the middleware."""
    request: HttpRequest = context["request"]
    error = find_error(exception)
    if error is None:
        return None
    headers = _headers_of(error)
    if isinstance(exception, exceptions.MethodNotAllowed):
        headers["Allow"] = ", ".join(context["view"].allowed_methods)
    return Response(family_of_request(request).body_of(error), status=error.status, headers=headers)


def family_of_request(request: HttpRequest) -> Family:
    """Return the family whose errors the client reads."""
    return family_of_client(request.path, request.META)


def is_for_people(request: HttpRequest, family: Family) -> bool:
    """Return whether a person reads the response: on a page's path, or in a browser outside of any API."""
    return family is Family.PAGES or (family is Family.LOGS and "text/html" in request.headers.get("Accept", ""))


def find_error(exception: Exception) -> ApiError | None:
    """Return the exception as an API error; None for a defect."""
    match exception:
        case ApiError():
            return exception
        case exceptions.APIException():
            return _error_of(exception)
        case Http404():
            return errors.NotFound(NO_ROUTE)
        case PermissionDenied():
            return errors.Forbidden("Access denied")
        case SuspiciousOperation() | BadRequest() | MultiPartParserError():
            count_suspicious(type(exception).__name__, said=str(exception)[:_MAX_SAID])
            return _error_of_suspicious(exception)
        case OperationalError() | InterfaceError():
            log.error("database.away", error=str(exception))
            return errors.Overloaded("The service is temporarily unavailable; try again shortly")
    return None


def _error_of_suspicious(exception: Exception) -> ApiError:
    """Return the error for a request that Django's own checks refuse."""
    match exception:
        case RequestDataTooBig():
            return errors.BodyTooLarge("The request body is too large")
        case DisallowedHost():
            return errors.InvalidRequest("This host is not one of ALLOWED_HOSTS")
        case TooManyFieldsSent() | TooManyFilesSent():
            return errors.InvalidRequest("The request has too many fields or files")
        case MultiPartParserError():
            return errors.InvalidRequest("The form cannot be read: it is not multipart/form-data, or is cut short")
        case BadRequest():
            return errors.InvalidRequest("The form cannot be read: it must be UTF-8")
    return errors.InvalidRequest("Bad request")


def unknown_path(path: str) -> ApiError:
    """Return the error for a path without a route, which names the paths near it."""
    near = [f"`{one}`" for one in route_table().near(path)]
    return errors.NotFound(f"{NO_ROUTE}; did you mean {' or '.join(near)}?" if near else NO_ROUTE)


def method_not_allowed() -> ApiError:
    """Return the error for a method that the path does not support."""
    return errors.InvalidRequest(BAD_METHOD, status=405, code="method_not_allowed")


def unexpected(exception: BaseException | None) -> ApiError:
    """Log a defect, and return the generic error."""
    log.error("request.failed", error=type(exception).__name__, exc_info=exception)
    return errors.InternalError("Internal server error")


def is_admin(request: HttpRequest) -> bool:
    """Return whether the response is for the admin, which only people use."""
    return request.path.startswith("/admin/")


def _error_of(exception: exceptions.APIException) -> ApiError:
    """Translate the REST framework's exceptions."""
    match exception:
        case exceptions.ValidationError():
            return InvalidFields(list(_issues_of(exception.detail)))
        case exceptions.ParseError():
            return errors.InvalidRequest(str(exception.detail), code="invalid_json")
        case exceptions.AuthenticationFailed() | exceptions.NotAuthenticated():
            return errors.Unauthenticated("Missing or invalid session token or management key")
        case exceptions.PermissionDenied():
            return errors.Forbidden("Access denied")
        case exceptions.NotFound():
            return errors.NotFound(NO_ROUTE)
        case exceptions.MethodNotAllowed():
            return method_not_allowed()
        case exceptions.UnsupportedMediaType():
            return errors.UnsupportedMediaType("Content-Type must be application/json")
    return errors.InvalidRequest(str(exception.detail), status=exception.status_code)


def _issues_of(detail: Any, path: str = "") -> Iterator[Issue]:
    """Flatten the REST framework's nested errors into one issue per field."""
    if isinstance(detail, dict):
        for name, inner in detail.items():
            if isinstance(name, int):
                # The invalid members of a list.
                yield from _issues_of(inner, f"{path}[{name}]")
            else:
                yield from _issues_of(inner, path if name == "non_field_errors" else f"{path}.{name}".strip("."))
    elif isinstance(detail, list):
        for index, inner in enumerate(detail):
            yield from _issues_of(inner, path if isinstance(inner, str) else f"{path}[{index}]")
    else:
        yield Issue(path, "Required" if getattr(detail, "code", "") == "required" else reword(str(detail)))


def _headers_of(error: ApiError) -> dict[str, str]:
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    if error.forbids_retry:
        headers.update([errors.NO_RETRY])
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return headers


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer 400 (413 for a body over the limit)."""
    return _show(request, find_error(exception) or errors.InvalidRequest("Bad request"))


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer 403."""
    return _show(request, errors.Forbidden("Access denied"))


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer 404."""
    if is_admin(request):
        return show_error(request, errors.NotFound("There is nothing at this path"))
    return answer(request, unknown_path(request.path))


def failed(request: HttpRequest) -> HttpResponse:
    """Answer 500, or 503 if a store is down; a defect is logged."""
    exception = sys.exc_info()[1]
    known = find_error(exception) if isinstance(exception, Exception) else None
    return _show(request, known or unexpected(exception))


def forged(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Answer 403 for a form without its CSRF token."""
    count_suspicious(FORGED_FORM, said=reason[:200])
    return _show(request, errors.Forbidden("This form is too old, or came from another site", code="form_expired"))


def _show(request: HttpRequest, error: errors.ApiError) -> HttpResponse:
    """Answer in the client's format: in the admin always as a page."""
    return show_error(request, error) if is_admin(request) else answer(request, error)


SUSPICIOUS = Counter("gateway_suspicious_requests_total", "Requests that the framework's checks refused", ["kind"])
FORGED_FORM: Final = "ForgedForm"
_KINDS: tuple[type[Exception], ...] = (
    SuspiciousOperation,
    *SuspiciousOperation.__subclasses__(),
    BadRequest,
    MultiPartParserError,
)
begin_at_zero(SUSPICIOUS, (FORGED_FORM, *(kind.__name__ for kind in _KINDS)))
# Seconds between log entries of one kind.
_BETWEEN_LINES = 1.0
_untold: Counts[str] = Counts()
_told_at: dict[str, float] = {}


def count_suspicious(kind: str, **details: Any) -> None:
    """Count a request, and log its details unless one was just logged. The caller limits the details' size."""
    SUSPICIOUS.labels(kind).inc()
    _untold[kind] += 1
    now = time.monotonic()
    if now - _told_at.get(kind, -_BETWEEN_LINES) >= _BETWEEN_LINES:
        _told_at[kind] = now
        log.info("request.suspicious", kind=kind, count=_untold.pop(kind), **details)
