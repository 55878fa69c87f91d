"""Error pages: what a person reads in a browser when something cannot be had.

Knows the words for each status. Must never tell more than an API's client would be told.
"""

from __future__ import annotations

from typing import Final

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from apps.kernel.errors import ApiError

# Title, and what to do.
_WORDS: Final[dict[int, tuple[str, str]]] = {
    400: ("That did not work", "Go back, reload the page and try again."),
    401: ("Sign in first", "Your session has ended, or you are not signed in."),
    403: ("You may not see this", "Ask an owner of the organization to let you in, or sign in as somebody else."),
    404: ("Nothing is here", "The link may be old, or what it led to was deleted."),
    405: ("That did not work", "Go back, reload the page and try again."),
    413: ("That is too large", "Send less at once."),
    429: ("Too many tries", "Wait a little, then try again."),
    503: ("Back in a moment", "The service is busy or being looked after. Reload the page shortly."),
}
# The same for what a status does not say.
_WORDS_BY_CODE: Final[dict[str, tuple[str, str]]] = {
    "form_expired": (
        "This page is out of date",
        "Nothing was changed. Go back and send the form again; if it is refused once more, reload it first.",
    ),
}
# The same where operators are.
_ADMIN: Final = "/admin/"
_WORDS_IN_ADMIN: Final[dict[int, tuple[str, str]]] = {
    403: (
        "You may not see this",
        "An operator who is a superuser adds you to a group that may.",
    ),
    500: ("Something went wrong", "The log of this process has the traceback. Nothing of a form that failed is saved."),
}
_OTHER: Final = ("Something went wrong", "It was noted down. Try again; if it stays, tell whoever runs this gateway.")
# The page needs its styles and nothing else.
_POLICY: Final = (
    "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def show_error(request: HttpRequest, error: ApiError) -> HttpResponse:
    """Return the page for an error, under the error's status."""
    in_admin = request.path.startswith(_ADMIN)
    words = _WORDS_BY_CODE.get(error.code) or (_WORDS_IN_ADMIN.get(error.status) if in_admin else None)
    title, advice = words or _WORDS.get(error.status, _OTHER)
    context = {"title": title, "advice": advice, "message": error.message, "status": error.status, "admin": in_admin}
    # Without the request's context processors: a store that is away must not keep the page from being shown.
    page = HttpResponse(render_to_string("error.html", context), status=error.status)
    page["Content-Security-Policy"] = _POLICY
    return page
