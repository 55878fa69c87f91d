"""Messages for pages cost requests that have none nothing: their storage is made when it is first used."""

from __future__ import annotations

import pytest
from django.contrib import messages
from django.contrib.messages.storage import default_storage
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from apps.kernel.rest import middleware
from apps.kernel.rest.middleware import LazyMessageMiddleware


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[HttpRequest]:
    """The requests that a storage was made for."""
    requests: list[HttpRequest] = []

    def make(request: HttpRequest) -> object:
        requests.append(request)
        return default_storage(request)

    monkeypatch.setattr(middleware, "default_storage", make)
    return requests


def answer(*words: str) -> HttpResponse:
    """Return the answer to a request whose view adds these messages."""

    def view(request: HttpRequest) -> HttpResponse:
        request.session = {}  # type: ignore[assignment] # the cookie has room
        for one in words:
            messages.info(request, one)
        return HttpResponse()

    return LazyMessageMiddleware(view)(RequestFactory().get("/"))


def test_a_request_without_messages_makes_no_storage(made: list[HttpRequest]) -> None:
    assert dict(answer().cookies) == {}
    assert made == []


def test_a_message_is_kept_for_the_next_page(made: list[HttpRequest]) -> None:
    assert list(answer("saved").cookies) == ["messages"]
    assert len(made) == 1
