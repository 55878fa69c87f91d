"""Languages of pages and e-mails: the choice of a language, and texts in it.

English is the source. Only pages for people and e-mails have a language; the API and the admin stay English, so that
no middleware chooses one. `settings.LANGUAGES` lists the languages, `locale` has their texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any, Final, cast

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import translation
from django.utils.translation import get_language_from_request, gettext
from django.utils.translation import gettext_lazy as _django_lazy

# The attribute of a request with the language of its page.
_CHOSEN: Final = "page_language"


def gettext_lazy(text: str) -> str:
    """Mark a text of a constant; it is read in the language in which it is shown."""
    return cast(str, _django_lazy(text))


def translated(text: str) -> str:
    """Return a text of the product in the active language; unchanged where it has no translation."""
    return gettext(text) if text else ""


def translated_sentence(text: str, sentences: Sequence[str], nested: Mapping[str, Sequence[str]] | None = None) -> str:
    """Return a text that was made from one of the sentences in the active language, with its values.

    Values named in `nested` are made from the sentences there. Without a sentence that fits the text is unchanged.
    """
    inner = nested or {}
    found = find_sentence(text, sentences)
    if found is None:
        return text
    sentence, values = found
    values |= {name: translated_sentence(values[name], inner[name], inner) for name in inner.keys() & values.keys()}
    return gettext(sentence).format(**values)


def find_sentence(text: str, sentences: Sequence[str]) -> tuple[str, dict[str, str]] | None:
    """Return the first sentence that a text may have been made from, with the values of its names; None without one."""
    for sentence in sentences:
        if found := _pattern(sentence).fullmatch(text):
            return sentence, found.groupdict()
    return None


@cache
def _pattern(sentence: str) -> re.Pattern[str]:
    """Return the pattern of the texts that a sentence with `{name}` makes."""
    parts = enumerate(re.split(r"\{(\w+)\}", sentence))
    pieces = (f"(?P<{part}>.+?)" if index % 2 else re.escape(part) for index, part in parts)
    return re.compile("".join(pieces), re.DOTALL)


def translated_choices(choices: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return choices of the product with labels in the active language."""
    return [(value, translated(label)) for value, label in choices]


def active_language() -> str:
    """Return the active language, as pages and e-mails have it."""
    code = translation.get_language() or settings.LANGUAGE_CODE
    return code if code in dict(settings.LANGUAGES) else settings.LANGUAGE_CODE


@contextmanager
def page_language(request: HttpRequest, chosen: str = "") -> Iterator[None]:
    """Use the language of a page: the account's choice, else that of the cookie or the browser, else English."""
    code = chosen if chosen in dict(settings.LANGUAGES) else getattr(request, _CHOSEN, "")
    code = code or get_language_from_request(request)
    setattr(request, _CHOSEN, code)
    with translation.override(code):
        yield


def in_page_language(view: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Make a view answer in the language of its page."""

    @wraps(view)
    def serve(request: HttpRequest) -> HttpResponse:
        with page_language(request):
            return view(request)

    return serve


def email_code(*preferred: str) -> str:
    """Return the language of an e-mail: the first of the given ones that exists, else English."""
    known = dict(settings.LANGUAGES)
    return next((code for code in preferred if code in known), settings.LANGUAGE_CODE)


@contextmanager
def email_language(*preferred: str) -> Iterator[None]:
    """Use the language of an e-mail, as `email_code` chooses it."""
    with translation.override(email_code(*preferred)):
        yield


def remember_language(response: Any, code: str) -> None:
    """Keep the account's choice in a cookie, for pages before the sign-in; an empty choice removes it."""
    if not code:
        response.delete_cookie(settings.LANGUAGE_COOKIE_NAME, samesite="Lax")
        return
    response.set_cookie(
        settings.LANGUAGE_COOKIE_NAME,
        code,
        max_age=settings.LANGUAGE_COOKIE_AGE,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )
