"""Messages middleware for pages: Django's message storage, made when a page first adds or shows a message.

Django makes the storage for every request, also of the API, and its cookie signer takes longer than many refusals.
"""

from __future__ import annotations

from typing import Any

from django.contrib.messages.middleware import MessageMiddleware
from django.contrib.messages.storage import default_storage
from django.http import HttpRequest, HttpResponse
from django.utils.functional import SimpleLazyObject, empty


class LazyMessageMiddleware(MessageMiddleware):
    """Django's middleware, for storage that most requests never use."""

    def process_request(self, request: Any) -> None:
        """Give the request its messages."""
        request._messages = SimpleLazyObject(lambda: default_storage(request))

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Store added messages, if anything accessed the message storage."""
        stored: Any = getattr(request, "_messages", None)
        if isinstance(stored, SimpleLazyObject) and stored.__dict__.get("_wrapped") is empty:
            return response
        return super().process_response(request, response)
