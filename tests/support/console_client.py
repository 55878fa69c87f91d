"""A browser on the console's pages, without the browser: cookies, forms, what a page says."""

from __future__ import annotations

import html
import re
import secrets
from typing import Any

from django.test import Client

from apps.console.browser_session import COOKIE
from apps.console.forms import ONCE
from apps.organizations.credentials.sessions import start_session
from apps.organizations.models import Organization, User

_TAG = re.compile(r"<(script|style)\b.*?</\1>|<[^>]+>", re.DOTALL)


class Visitor:
    """A user with a browser; answers are Django's test responses. `check_forgery` sends forms as a stranger's site
    would: without the page's token."""

    def __init__(self, user: User | None = None, *, check_forgery: bool = False) -> None:
        self.client = Client(enforce_csrf_checks=check_forgery, raise_request_exception=False)
        if user is not None:
            self.client.cookies[COOKIE] = start_session(user)

    def open(self, path: str, **query: str) -> Any:
        """Open a page, as a browser asks for it."""
        return self.client.get(path, query, headers={"accept": "text/html"})

    def send(self, path: str, fields: dict[str, Any] | None = None, *, once: str | None = None) -> Any:
        """Send a form; two with the same `once` are one form sent twice."""
        sent = {ONCE: once or secrets.token_urlsafe(16), **(fields or {})}
        return self.client.post(path, sent, headers={"accept": "text/html"})


def page(organization: Organization, path: str = "") -> str:
    """Return the path of an organization's page."""
    return f"/app/o/{organization.id}/{path}"


def words(response: Any) -> str:
    """Return what a person reads on a page, in one line."""
    return " ".join(html.unescape(_TAG.sub(" ", response.content.decode())).split())
