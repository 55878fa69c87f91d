"""The tables of stored responses, conversations and background runs.

Rows keep plain ids of tenants, not foreign keys, as the log does: erasure and retention remove them in batches. Every
column with content of requests or answers is encrypted (`encryption.py`).
"""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models


class ResponseStatus(models.TextChoices):
    """How a response stands, in the words of the API."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    CANCELLED = "cancelled"


# Nothing becomes of these any more.
FINAL_STATUSES = frozenset(
    {ResponseStatus.COMPLETED, ResponseStatus.INCOMPLETE, ResponseStatus.FAILED, ResponseStatus.CANCELLED}
)


class StoredResponse(models.Model):
    """One response: what was new in its input, and the response object itself, both encrypted."""

    # As clients see it, `resp_…`.
    id = models.CharField(primary_key=True, max_length=80, editable=False)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(db_index=True)
    organization_id = models.UUIDField()
    project_id = models.UUIDField()
    api_key_id = models.UUIDField()
    # The response that this one goes on from, and the conversation that it belongs to; never both.
    previous_id = models.CharField(max_length=80, null=True)
    conversation_id = models.CharField(max_length=80, null=True)
    status = models.CharField(max_length=16, choices=ResponseStatus.choices)
    background = models.BooleanField(default=False)
    # Whether a background response keeps its events, so that a stream of them can be resumed.
    streamed = models.BooleanField(default=False)
    sealed_input = models.TextField()
    sealed_response = models.TextField()
    # Ids in its input and output: a later request may refer to an item by its id.
    item_ids = ArrayField(models.CharField(max_length=128))
    size = models.BigIntegerField(help_text="bytes of input and response in clear")
    context_size = models.BigIntegerField(help_text="bytes of what it adds to a later input, in clear")

    class Meta:
        db_table = "stored_response"
        indexes = [
            models.Index(fields=["organization_id", "created_at"], name="response_organization"),
            GinIndex(fields=["item_ids"], name="response_items"),
        ]

    def __str__(self) -> str:
        return self.id


class BackgroundRun(models.Model):
    """A background response that is still to be answered, and the lease of the process that answers it.

    The row goes with the end of the run: a run whose row is gone has ended, was cancelled, or was deleted.
    """

    response = models.OneToOneField(StoredResponse, models.CASCADE, primary_key=True, related_name="run")
    # The id of its log row and its charge, the same however often it is begun: it is charged once.
    log_id = models.UUIDField()
    # The request to the pipeline with the relevant headers, encrypted.
    sealed_request = models.TextField()
    lease_owner = models.CharField(max_length=128)
    lease_until = models.DateTimeField(db_index=True)
    attempts = models.PositiveSmallIntegerField(default=1)

    class Meta:
        db_table = "background_run"

    def __str__(self) -> str:
        return f"{self.response_id}, attempt {self.attempts}"


class Conversation(models.Model):
    """A conversation: a list of items that responses are added to. It lives as long as it is used."""

    # As clients see it, `conv_…`.
    id = models.CharField(primary_key=True, max_length=80, editable=False)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(db_index=True)
    organization_id = models.UUIDField(db_index=True)
    project_id = models.UUIDField()
    sealed_metadata = models.TextField()
    # The position of the next item.
    next_position = models.BigIntegerField(default=0)
    size = models.BigIntegerField(help_text="bytes in clear")

    class Meta:
        db_table = "conversation"

    def __str__(self) -> str:
        return self.id


class ConversationItem(models.Model):
    """One item of a conversation, encrypted. It expires by itself, so that a long-lived conversation forgets."""

    conversation = models.ForeignKey(Conversation, models.CASCADE, related_name="items")
    position = models.BigIntegerField()
    item_id = models.CharField(max_length=128)
    expires_at = models.DateTimeField(db_index=True)
    organization_id = models.UUIDField(db_index=True)
    project_id = models.UUIDField()
    sealed_item = models.TextField()
    size = models.BigIntegerField(help_text="bytes in clear")

    class Meta:
        db_table = "conversation_item"
        constraints = [
            models.UniqueConstraint(fields=["conversation", "position"], name="conversation_position_once"),
            models.UniqueConstraint(fields=["conversation", "item_id"], name="conversation_item_once"),
        ]
        indexes = [models.Index(fields=["project_id", "item_id"], name="conversation_item_reference")]

    def __str__(self) -> str:
        return self.item_id
