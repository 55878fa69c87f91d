"""Files, batches and their lines in the Django admin, without the content of any.

Operators see who owns each file, how long it is kept and how batches progress; requests and answers stay encrypted.
"""

from __future__ import annotations

from django.contrib import admin

from apps.batches.models import Batch, BatchLine, FileChunk, NativeJob, StoredFile, Upload
from apps.responses.admin import PublicIdAdmin


@admin.register(StoredFile)
class StoredFileAdmin(PublicIdAdmin):
    """One row a file."""

    list_display = ("id", "created_at", "expires_at", "purpose", "size", "is_complete", "organization_id", "project_id")
    exclude = ("sealed_name", "sealed_parts")
    ordering = ("-created_at",)
    owners = ("organization_id", "project_id")
    help_texts = {
        "expires_at": "When it is deleted with its content (UTC).",
        "purpose": "Why it was uploaded or written, in the words of the API.",
        "lines": "Number of lines of a batch's input; 0 where that is not known.",
        "is_complete": "Whether all of it has arrived; until then it cannot be used.",
        "upload": "The upload that it is a part of; empty for a file.",
    }


@admin.register(Upload)
class UploadAdmin(PublicIdAdmin):
    """One row an upload in parts."""

    list_display = ("id", "created_at", "expires_at", "status", "purpose", "size", "organization_id", "project_id")
    exclude = ("sealed_name",)
    ordering = ("-created_at",)
    owners = ("organization_id", "project_id")
    help_texts = {
        "expires_at": "When it stops to take parts (UTC).",
        "status": "Pending, completed or cancelled.",
        "purpose": "The purpose of its file, in the words of the API.",
        "file_id": "Its file, which can be used once the upload is completed.",
    }


@admin.register(FileChunk)
class FileChunkAdmin(PublicIdAdmin):
    """One row a part of a file."""

    list_display = ("id", "file_id", "position")
    exclude = ("sealed_content",)
    public_id = "file_id"
    owners = ("file__organization_id", "file__project_id")
    help_texts = {
        "file": "The file that this is a part of.",
        "position": "Its place in the file, from 0.",
    }


@admin.register(Batch)
class BatchAdmin(PublicIdAdmin):
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
    exclude = ("sealed_headers", "sealed_metadata", "sealed_errors", "sealed_refusal")
    ordering = ("-created_at",)
    owners = ("organization_id", "project_id", "api_key_id")
    help_texts = {
        "format": "The API it was created over: OpenAI's or Anthropic's.",
        "endpoint": "The path that every line is sent to.",
        "status": "How far it is, in the words of OpenAI's API.",
        "expires_at": "End of its time window (UTC): lines that were not answered by then expire.",
        "kept_until": "When it is deleted with its results (UTC).",
        "in_progress_at": "When its lines began to be answered (UTC); empty before that.",
        "cancelling_at": "When it was cancelled (UTC); empty if it was not.",
        "finalizing_at": "When its results began to be written (UTC); empty before that.",
        "ended_at": "When nothing was left to do (UTC); empty before that.",
        "paused_until": "No line is started before this moment (UTC): a limit was reached.",
        "input_file_id": "The file with its requests.",
        "output_file_id": "The file with its answers; empty until they are written, or where there is none.",
        "error_file_id": "The file with the lines that failed; empty until it is written, or where none failed.",
        "bytes_read": "How many bytes of its input are read.",
        "lines_read": "How many lines of its input are read.",
        "lines_prepared": "How many lines of its input are read that are not blank.",
        "lines_counted": "Lines that count towards what its organization may have in progress.",
        "total": "Number of lines.",
        "succeeded": "Lines that were answered; 0 until all have ended.",
        "errored": "Lines that failed; 0 until all have ended.",
        "cancelled": "Lines that were cancelled; 0 until all have ended.",
        "expired": "Lines that were not answered in time; 0 until all have ended.",
    }


@admin.register(NativeJob)
class NativeJobAdmin(PublicIdAdmin):
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
    help_texts = {
        "batch": "The batch whose lines are in it.",
        "format": "The wire format of the provider's batch API.",
        "provider_id": "The catalog's id of the provider.",
        "model_name": "The provider's name of the model.",
        "path": "The provider's path that its lines are sent to.",
        "credential": "The name of the credential that pays for it, or the id of an organization's own key.",
        "is_own_key": "Whether the credential is the organization's own.",
        "storage": "The folder in a bucket where its lines and answers are; for Amazon Bedrock alone.",
        "role": "The role with which Amazon Bedrock reads and writes there.",
        "api_url": "The address that creates and shows jobs, where it is not AWS's own.",
        "storage_url": "The address of the bucket, where it is not AWS's own.",
        "status": "Gathering lines, on its way to the provider, running there, or ended.",
        "external_id": "Its id at the provider; empty until that is known.",
        "lines": "Number of lines in it.",
        "submitted_at": "When the provider took it (UTC); empty before that.",
        "cancelled_at": "When it was cancelled (UTC); empty if it was not.",
        "next_look_at": "It is not looked at again before this moment (UTC).",
        "looks": "How often the provider was asked how it stands.",
        "failures": "How often that failed, one after the other.",
    }


@admin.register(BatchLine)
class BatchLineAdmin(PublicIdAdmin):
    """One row a line of a batch that has not ended, with the process that answers it."""

    list_display = ("id", "batch_id", "position", "outcome", "native_state", "attempts", "lease_owner", "lease_until")
    exclude = ("sealed_request", "sealed_result", "sealed_native")
    public_id = "batch_id"
    owners = ("log_id", "batch__organization_id", "batch__project_id")
    help_texts = {
        "batch": "The batch that it is a line of.",
        "position": "Its place among the lines, from 0.",
        "custom_id_digest": "By which another line with the same custom id is found.",
        "outcome": "How it ended; empty while it has not.",
        "log_id": "The id of its row in the request log; empty before it starts.",
        "lease_owner": "The process that answers it; empty where none does.",
        "lease_until": "When another process may take it over (UTC).",
        "attempts": "How often the process that answered it was lost.",
        "turned_away": "How often providers refused it because of their load.",
        "native_job": "The job at a provider that it is in; empty where it is in none.",
        "native_state": "Parked in a job, answered by it, or declined; empty outside of jobs.",
    }
