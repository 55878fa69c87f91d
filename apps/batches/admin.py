"""Files, batches and their lines in the Django admin, without the content of any.

Operators see what is kept for whom and until when, and how batches go; what was asked and answered stays encrypted.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from apps.batches.models import Batch, BatchLine, FileChunk, NativeJob, StoredFile
from apps.kernel.admin import LongTableAdmin
from apps.kernel.ids import find_id
from apps.responses.public_ids import is_public_id


class _OwnedAdmin(LongTableAdmin):
    """Rows found by the id that clients see, `public_id`, or by an id of their owners."""

    public_id = "pk"
    search_help_text = "An exact id: its own, or that of an organization or a project"

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Look an id up, as an owner's and then as the row's own."""
        words = search_term.strip()
        if not words:
            return queryset, False
        identifier = find_id(words)
        if identifier is None:
            return queryset.filter(**{self.public_id: words}) if is_public_id(words) else queryset.none(), False
        for column in self.owners:
            rows = queryset.filter(**{column: identifier})
            if rows.exists():
                return rows, False
        return queryset.none(), False


@admin.register(StoredFile)
class StoredFileAdmin(_OwnedAdmin):
    """One row a file."""

    list_display = ("id", "created_at", "expires_at", "purpose", "size", "is_complete", "organization_id", "project_id")
    exclude = ("sealed_name",)
    ordering = ("-created_at",)
    owners = ("organization_id", "project_id")


@admin.register(FileChunk)
class FileChunkAdmin(_OwnedAdmin):
    """One row a part of a file."""

    list_display = ("id", "file_id", "position")
    exclude = ("sealed_content",)
    public_id = "file_id"
    owners = ("file__organization_id", "file__project_id")


@admin.register(Batch)
class BatchAdmin(_OwnedAdmin):
    """One row a batch, with how many of its lines ended how once all have."""

    list_display = (
        "id",
        "created_at",
        "status",
        "endpoint",
        "total",
        "succeeded",
        "errored",
        "paused_until",
        "organization_id",
    )
    exclude = ("sealed_headers", "sealed_metadata", "sealed_errors")
    ordering = ("-created_at",)
    owners = ("organization_id", "project_id", "api_key_id")


@admin.register(NativeJob)
class NativeJobAdmin(_OwnedAdmin):
    """One row a job at a provider's batch API."""

    list_display = (
        "id",
        "batch_id",
        "provider_id",
        "model_name",
        "status",
        "lines",
        "external_id",
        "failures",
        "next_look_at",
    )
    ordering = ("-created_at",)
    public_id = "batch_id"
    owners = ("id", "batch__organization_id", "batch__project_id")


@admin.register(BatchLine)
class BatchLineAdmin(_OwnedAdmin):
    """One row a line of a batch that has not ended, with the process that answers it."""

    list_display = ("id", "batch_id", "position", "outcome", "native_state", "attempts", "lease_owner", "lease_until")
    exclude = ("sealed_request", "sealed_result", "sealed_native")
    public_id = "batch_id"
    owners = ("log_id", "batch__organization_id", "batch__project_id")
