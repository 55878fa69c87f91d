"""The tables of stored files, batches and the lines of batches.

Rows keep plain ids of tenants, not foreign keys, as the log does: erasure and retention remove them in batches. Every
column with content of requests or answers is encrypted (`kernel/secrets/encryption.py`).
"""

from __future__ import annotations

from uuid import uuid4

from django.db import models
from django.db.models import Q

_ID_LENGTH = 80


class FilePurpose(models.TextChoices):
    """The purpose of a file, in OpenAI's words; the last five are our own, and no client sees them."""

    ASSISTANTS = "assistants"
    BATCH = "batch"
    BATCH_OUTPUT = "batch_output"
    EVALS = "evals"
    FINE_TUNE = "fine-tune"
    USER_DATA = "user_data"
    VISION = "vision"
    MESSAGE_BATCH = "message_batch"
    MESSAGE_BATCH_RESULTS = "message_batch_results"
    IMAGE_LINK = "image_link"
    UPLOAD_PART = "upload_part"


# Files of these are parts of a batch or an upload, or behind a link, and reached through it alone.
HIDDEN_PURPOSES = (
    FilePurpose.MESSAGE_BATCH,
    FilePurpose.MESSAGE_BATCH_RESULTS,
    FilePurpose.IMAGE_LINK,
    FilePurpose.UPLOAD_PART,
)


class UploadStatus(models.TextChoices):
    """The state of an upload in OpenAI's words; one that is pending past its time is `expired`."""

    PENDING = "pending"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


class Upload(models.Model):
    """A file that arrives in parts. Its file takes room from the beginning, and its parts become that file's chunks."""

    # As clients see it, `upload_…`.
    id = models.CharField(primary_key=True, max_length=_ID_LENGTH, editable=False)
    created_at = models.DateTimeField()
    # No part is taken after this.
    expires_at = models.DateTimeField(db_index=True)
    organization_id = models.UUIDField(db_index=True)
    project_id = models.UUIDField()
    status = models.CharField(max_length=16, choices=UploadStatus.choices, default=UploadStatus.PENDING)
    purpose = models.CharField(max_length=32, choices=FilePurpose.choices)
    size = models.BigIntegerField(help_text="bytes that its parts must have together")
    sealed_name = models.TextField()
    file_id = models.CharField(max_length=_ID_LENGTH)
    lifetime = models.PositiveIntegerField(null=True, help_text="seconds that its file is kept, if said")

    class Meta:
        db_table = "file_upload"

    def __str__(self) -> str:
        return self.id


class StoredFile(models.Model):
    """One file; its content lies in chunks, each encrypted."""

    # As clients see it, `file-…`.
    id = models.CharField(primary_key=True, max_length=_ID_LENGTH, editable=False)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(db_index=True)
    organization_id = models.UUIDField(db_index=True)
    project_id = models.UUIDField()
    purpose = models.CharField(max_length=32, choices=FilePurpose.choices)
    sealed_name = models.TextField()
    size = models.BigIntegerField(help_text="bytes in clear")
    # Lines of a batch's input, ends of lines counted; 0 where that is not known.
    lines = models.PositiveIntegerField(default=0, db_default=0)
    # It is invisible until all chunks are there.
    is_complete = models.BooleanField(default=False)
    # The upload that it is a part of.
    upload = models.ForeignKey(Upload, models.CASCADE, null=True, related_name="parts")
    # For a file that arrived in parts: their ids and sizes in order, encrypted. Its chunks are theirs.
    sealed_parts = models.TextField(blank=True, default="", db_default="")

    class Meta:
        db_table = "stored_file"
        indexes = [models.Index(fields=["project_id", "created_at", "id"], name="stored_file_listing")]

    def __str__(self) -> str:
        return self.id


class FileChunk(models.Model):
    """A part of a file's content, encrypted."""

    file = models.ForeignKey(StoredFile, models.CASCADE, related_name="chunks")
    position = models.PositiveIntegerField()
    sealed_content = models.TextField()

    class Meta:
        db_table = "stored_file_chunk"
        constraints = [models.UniqueConstraint(fields=["file", "position"], name="file_chunk_once")]

    def __str__(self) -> str:
        return f"{self.file_id}, chunk {self.position}"


class BatchFormat(models.TextChoices):
    """In whose format a batch is created and told."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"


class BatchStatus(models.TextChoices):
    """How a batch stands, in OpenAI's words."""

    VALIDATING = "validating"
    FAILED = "failed"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"


# Something is still to be done for these.
OPEN_STATUSES = (BatchStatus.VALIDATING, BatchStatus.IN_PROGRESS, BatchStatus.FINALIZING, BatchStatus.CANCELLING)
# Lines of these may be answered.
RUNNING_STATUSES = (BatchStatus.IN_PROGRESS, BatchStatus.CANCELLING)


class Batch(models.Model):
    """Many requests to one endpoint, each a line, answered until `expires_at`."""

    # As clients see it, `batch_…` or `msgbatch_…`.
    id = models.CharField(primary_key=True, max_length=_ID_LENGTH, editable=False)
    format = models.CharField(max_length=16, choices=BatchFormat.choices)
    organization_id = models.UUIDField(db_index=True)
    project_id = models.UUIDField()
    # Whose limits and rules hold for the lines.
    api_key_id = models.UUIDField()
    endpoint = models.CharField(max_length=100)
    status = models.CharField(max_length=16, choices=BatchStatus.choices)
    created_at = models.DateTimeField()
    # The end of its window, and of its being kept.
    expires_at = models.DateTimeField()
    kept_until = models.DateTimeField(db_index=True)
    in_progress_at = models.DateTimeField(null=True)
    cancelling_at = models.DateTimeField(null=True)
    finalizing_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    # No line begins before this: a limit was reached, or could not be checked.
    paused_until = models.DateTimeField()
    input_file_id = models.CharField(max_length=_ID_LENGTH)
    output_file_id = models.CharField(max_length=_ID_LENGTH, null=True)
    error_file_id = models.CharField(max_length=_ID_LENGTH, null=True)
    output_lifetime = models.PositiveIntegerField(null=True, help_text="seconds that output files are kept, if said")
    # Lines, and how they ended; the latter once all have.
    total = models.PositiveIntegerField(default=0)
    succeeded = models.PositiveIntegerField(default=0)
    errored = models.PositiveIntegerField(default=0)
    cancelled = models.PositiveIntegerField(default=0)
    expired = models.PositiveIntegerField(default=0)
    # How far its input is read, of which a piece is read at a time: bytes, lines, and lines that are not blank.
    bytes_read = models.BigIntegerField(default=0, db_default=0)
    lines_read = models.PositiveIntegerField(default=0, db_default=0)
    lines_prepared = models.PositiveIntegerField(default=0, db_default=0)
    # Lines that count towards what its organization may have open; its input may turn out to have fewer.
    lines_counted = models.PositiveIntegerField(default=0, db_default=0)
    # The client's headers that mean anything to a line, the client's metadata, and what is wrong with the input.
    sealed_headers = models.TextField()
    sealed_metadata = models.TextField()
    sealed_errors = models.TextField(blank=True)
    # The answer of all its unpaid lines.
    sealed_refusal = models.TextField(blank=True, default="", db_default="")

    class Meta:
        db_table = "batch"
        verbose_name_plural = "batches"
        indexes = [
            models.Index(fields=["project_id", "format", "created_at", "id"], name="batch_listing"),
            models.Index(fields=["created_at"], name="batch_open", condition=Q(status__in=OPEN_STATUSES)),
        ]

    def __str__(self) -> str:
        return self.id


class LineOutcome(models.TextChoices):
    """How a line ended; none while it has not."""

    OPEN = ""
    SUCCEEDED = "succeeded"
    ERRORED = "errored"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    # Not begun, as credits or the key's limit had run out for those before it; counted as errored.
    UNPAID = "unpaid"


class NativeJobStatus(models.TextChoices):
    """How a job at a provider's batch API stands: lines come in; it is on its way there; it is there; it is over."""

    GATHERING = "gathering"
    SUBMITTING = "submitting"
    RUNNING = "running"
    ENDED = "ended"


class NativeJob(models.Model):
    """Lines of one batch that a provider's own batch API answers: of one model, path and credential."""

    # Its marker at the provider, too.
    id = models.UUIDField(primary_key=True, default=uuid4, editable=False)
    batch = models.ForeignKey(Batch, models.CASCADE, related_name="native_jobs")
    format = models.CharField(max_length=16)
    provider_id = models.CharField(max_length=40)
    model_name = models.CharField(max_length=255)
    path = models.CharField(max_length=100)
    # The name of what it is paid with, never the secret; an organization's own key's id.
    credential = models.CharField(max_length=80)
    is_own_key = models.BooleanField(default=False)
    # Where Bedrock keeps it (`JobPlace`), copied when it is gathered: the catalog may state another place before it has
    # ended, or none.
    storage = models.CharField(max_length=500, blank=True, default="", db_default="")
    role = models.CharField(max_length=2048, blank=True, default="", db_default="")
    api_url = models.CharField(max_length=300, blank=True, default="", db_default="")
    storage_url = models.CharField(max_length=300, blank=True, default="", db_default="")
    status = models.CharField(max_length=16, choices=NativeJobStatus.choices, default=NativeJobStatus.GATHERING)
    # The provider's id of it, once known.
    external_id = models.CharField(max_length=200, blank=True)
    lines = models.PositiveIntegerField(default=0)
    size = models.BigIntegerField(default=0, help_text="bytes of its requests")
    created_at = models.DateTimeField()
    submitted_at = models.DateTimeField(null=True)
    cancelled_at = models.DateTimeField(null=True)
    # No worker polls it before this: it is too early, or another worker is polling. Polls, and failed ones in a row.
    next_look_at = models.DateTimeField()
    looks = models.PositiveIntegerField(default=0)
    failures = models.PositiveSmallIntegerField(default=0)

    class Meta:
        db_table = "batch_native_job"
        indexes = [
            models.Index(
                fields=["next_look_at"],
                name="batch_native_job_open",
                condition=Q(status__in=("gathering", "submitting", "running")),
            )
        ]

    def __str__(self) -> str:
        return f"{self.id} at {self.provider_id}"


class NativeState(models.TextChoices):
    """The state of a line at its provider's batch API: none, in a job, answered, or not to be sent there again."""

    NONE = ""
    PARKED = "parked"
    ANSWERED = "answered"
    DECLINED = "declined"


class BatchLine(models.Model):
    """One request of a batch, with the lease of the process that answers it. The rows go once results are written."""

    batch = models.ForeignKey(Batch, models.CASCADE, related_name="lines")
    position = models.PositiveIntegerField()
    # By which an earlier line with the same custom id is found; says nothing without the key.
    custom_id_digest = models.UUIDField(null=True)
    # Its custom id and body, and what it was answered; encrypted.
    sealed_request = models.TextField()
    sealed_result = models.TextField(blank=True)
    outcome = models.CharField(max_length=16, choices=LineOutcome.choices, blank=True, default=LineOutcome.OPEN)
    # The id of its log row and its charge, the same however often it is begun: it is charged once.
    log_id = models.UUIDField(null=True)
    lease_owner = models.CharField(max_length=128, blank=True)
    lease_until = models.DateTimeField()
    # Times that it was begun by a worker that was lost, and that providers turned it away for their load.
    attempts = models.PositiveSmallIntegerField(default=0)
    turned_away = models.PositiveSmallIntegerField(default=0)
    # The job that it is in, what its provider is asked there and answered; encrypted.
    native_job = models.ForeignKey(NativeJob, models.SET_NULL, null=True, related_name="parked_lines")
    native_state = models.CharField(max_length=16, choices=NativeState.choices, blank=True, default=NativeState.NONE)
    sealed_native = models.TextField(blank=True)
    # No column: whether its owner claimed it with the log id of an earlier owner, which may have been charged.
    is_log_id_inherited: bool = False

    class Meta:
        db_table = "batch_line"
        constraints = [models.UniqueConstraint(fields=["batch", "position"], name="batch_line_once")]
        indexes = [
            models.Index(fields=["batch", "lease_until"], name="batch_line_open", condition=Q(outcome="")),
            models.Index(fields=["batch", "custom_id_digest"], name="batch_line_custom_id"),
        ]

    def __str__(self) -> str:
        return f"{self.batch_id}, line {self.position + 1}"
