"""Stored responses, conversations and background runs in the Django admin, without the content of any.

Operators see the owner and the expiry of each row; requests and answers stay encrypted.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from apps.kernel.ids import find_id
from apps.kernel.pages.admin import LongTableAdmin
from apps.responses.models import BackgroundRun, Conversation, ConversationItem, StoredResponse
from apps.responses.public_ids import is_public_id


class PublicIdAdmin(LongTableAdmin):
    """Rows of a long table; `public_id` is the column with the id that clients see."""

    ordering = ("-pk",)
    public_id = "pk"
    search_help_text = "An exact id: its own, or that of an organization or a project"

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Look an id up, as an owner's or as the row's own."""
        words = search_term.strip()
        if not words:
            return queryset, False
        identifier = find_id(words)
        if identifier is not None:
            return self.find_first(queryset, identifier, self.owners), False
        return queryset.filter(**{self.public_id: words}) if is_public_id(words) else queryset.none(), False


@admin.register(StoredResponse)
class StoredResponseAdmin(PublicIdAdmin):
    """One row a response that is kept."""

    list_display = ("id", "created_at", "expires_at", "status", "background", "size", "organization_id", "project_id")
    exclude = ("sealed_input", "sealed_response", "item_ids")
    ordering = ("-created_at",)
    owners = ("organization_id", "project_id", "api_key_id")
    help_texts = {
        "expires_at": "When it is deleted with its content (UTC).",
        "previous_id": "The response that it goes on from; empty: none.",
        "conversation_id": "The conversation that it belongs to; empty: none.",
        "status": "In the words of the API.",
        "background": "Whether it was asked for in the background.",
        "streamed": "Whether its events are kept, so that a stream of them can be resumed.",
    }


@admin.register(BackgroundRun)
class BackgroundRunAdmin(PublicIdAdmin):
    """One row a background response that is not answered yet, with the process that answers it."""

    list_display = ("response_id", "attempts", "lease_owner", "lease_until")
    exclude = ("sealed_request",)
    owners = ("log_id", "response__organization_id", "response__project_id")
    help_texts = {
        "response": "The response that is being made.",
        "log_id": "The id of its row in the request log.",
        "lease_owner": "The process that answers it.",
        "lease_until": "When another process may take it over (UTC).",
        "attempts": "How often it was started.",
    }


@admin.register(Conversation)
class ConversationAdmin(PublicIdAdmin):
    """One row a conversation."""

    list_display = ("id", "created_at", "expires_at", "next_position", "size", "organization_id", "project_id")
    exclude = ("sealed_metadata",)
    ordering = ("-created_at",)
    owners = ("organization_id", "project_id")
    help_texts = {
        "expires_at": "When it is deleted, unless it is used again (UTC).",
        "next_position": "The place of the next item, from 0.",
    }


@admin.register(ConversationItem)
class ConversationItemAdmin(PublicIdAdmin):
    """One row an item of a conversation."""

    list_display = ("item_id", "conversation_id", "position", "expires_at", "size", "organization_id", "project_id")
    exclude = ("sealed_item",)
    public_id = "item_id"
    owners = ("organization_id", "project_id")
    help_texts = {
        "conversation": "The conversation that it is an item of.",
        "position": "Its place in the conversation, from 0.",
        "item_id": "Its id in the API.",
        "expires_at": "When it is deleted (UTC).",
    }
