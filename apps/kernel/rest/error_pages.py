"""Error pages for browsers. They reveal no more than an API error."""

from __future__ import annotations

from typing import Final

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from apps.kernel.errors import ApiError

# Title and advice.
_WORDS: Final[dict[int, tuple[str, str]]] = {
    400: ("That did not work", "Go back, reload the page and try again."),
    401: ("Sign in first", "Your session has ended, or you are not signed in."),
    403: ("You have no access", "Ask an owner of the organization for access, or sign in with another account."),
    404: ("Page not found", "The link may be old, or its target was deleted."),
    405: ("That did not work", "Go back, reload the page and try again."),
    413: ("Too large", "Send less at once."),
    429: ("Too many attempts", "Wait a little, then try again."),
    503: ("Back in a moment", "The service is busy or under maintenance. Reload the page shortly."),
}
# The same for error codes.
_WORDS_BY_CODE: Final[dict[str, tuple[str, str]]] = {
    "form_expired": (
        "This page is out of date",
        "Nothing was changed. Go back and send the form again; if it is refused again, reload it first.",
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
_OTHER: Final = ("Something went wrong", "The error was logged. Try again; if it persists, contact the operator.")
# The page needs only its styles.
_POLICY: Final = (
    "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def show_error(request: HttpRequest, error: ApiError) -> HttpResponse:
    """Return the page of an error, with its status."""
    in_admin = request.path.startswith(_ADMIN)
    words = _WORDS_BY_CODE.get(error.code) or (_WORDS_IN_ADMIN.get(error.status) if in_admin else None)
    title, advice = words or _WORDS.get(error.status, _OTHER)
    context = {"title": title, "advice": advice, "message": error.message, "status": error.status, "admin": in_admin}
    # Without context processors: the page must work while a store is down.
    page = HttpResponse(render_to_string("error.html", context), status=error.status)
    page["Content-Security-Policy"] = _POLICY
    return page
