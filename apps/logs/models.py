"""Tables of the log: requests, daily totals, traffic, performance of providers, refused requests, agreed retention.

Rows have plain ids, not foreign keys, so that retention can drop whole days. `request_log` is partitioned by day of
`created_at`, which is the time in the UUIDv7 `id`: the id alone finds its partition.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Self
from uuid import UUID

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from apps.kernel.ids import new_id, time_of
from apps.kernel.money import MoneyField
from apps.organizations.models import Organization, RetentionLevel, User

__all__ = [
    "ActivityDay",
    "ActivityDelta",
    "ActivitySums",
    "LogRetention",
    "PerformanceCounts",
    "PerformanceDelta",
    "PerformanceSlot",
    "RefusedHour",
    "RequestLog",
    "RequestLogQuerySet",
    "SavedView",
    "TrafficCounts",
    "TrafficDelta",
    "TrafficSlot",
    "find_time",
]


def find_time(identifier: UUID) -> datetime | None:
    """Return the creation time of the row with this id, or None if no row can have such an id."""
    try:
        return time_of(identifier) if identifier.version == 7 else None
    except (ValueError, OverflowError):
        return None


class RequestLogQuerySet(models.QuerySet["RequestLog"]):
    """Rows of the log."""

    def filter(self, *args: Any, **kwargs: Any) -> Self:
        """Filter; an id implies the time, so that only one partition is searched."""
        identifier = kwargs.get("id", kwargs.get("pk"))
        if isinstance(identifier, UUID):
            moment = find_time(identifier)
            if moment is None:
                return self.none()
            kwargs.setdefault("created_at", moment)
        return super().filter(*args, **kwargs)


class RequestLog(models.Model):
    """One admitted request. Written once, by `writer.py`; content only if retention allows it."""

    id = models.UUIDField(primary_key=True, editable=False)
    created_at = models.DateTimeField()
    request_id = models.CharField(max_length=128)
    organization_id = models.UUIDField()
    project_id = models.UUIDField()
    api_key_id = models.UUIDField()
    provider_key_id = models.UUIDField(null=True)
    # `chat_completions`, `messages`, `images_generations`, …
    route = models.CharField(max_length=32)
    duration = models.IntegerField(help_text="milliseconds")
    time_to_first_token = models.IntegerField(null=True, help_text="milliseconds")

    requested_model = models.CharField(max_length=255)
    requested_provider = models.CharField(max_length=40, null=True)
    used_model = models.CharField(max_length=255)
    used_provider = models.CharField(max_length=80)
    # The provider's name of the model.
    underlying_model = models.CharField(max_length=255)

    messages = models.JSONField(null=True)
    content = models.TextField(null=True)
    reasoning_content = models.TextField(null=True)
    refusal = models.TextField(null=True, help_text="the model's words for declining")
    tool_calls = models.JSONField(
        null=True,
        help_text="calls of tools by the model: `{id, name, arguments}`, with `choice` past the first",
    )
    tool_call_counts = models.JSONField(null=True, help_text="number of calls by the tool's name")
    choices = models.JSONField(null=True, help_text="with several choices: `{index, finishReason, content, refusal}`")
    citations = models.JSONField(null=True, help_text="citations, in the form of OpenAI's annotations")
    media = models.JSONField(
        null=True, help_text="images and audio of the answer: `{kind, contentType, size, stored}`; bytes by their place"
    )
    # The bytes of what `media` describes as stored, one after another, encrypted. Read one row at a time.
    media_data = models.TextField(null=True)
    response_size = models.IntegerField(default=0, help_text="bytes")

    prompt_tokens = models.BigIntegerField(null=True)
    completion_tokens = models.BigIntegerField(null=True)
    total_tokens = models.BigIntegerField(null=True)
    reasoning_tokens = models.BigIntegerField(null=True)
    cached_tokens = models.BigIntegerField(null=True)
    cache_write_tokens = models.BigIntegerField(null=True)
    image_input_tokens = models.BigIntegerField(null=True)
    image_output_tokens = models.BigIntegerField(null=True)

    cost = MoneyField(null=True)
    input_cost = MoneyField(null=True)
    output_cost = MoneyField(null=True)
    cached_input_cost = MoneyField(null=True)
    cache_write_cost = MoneyField(null=True)
    request_cost = MoneyField(null=True)
    web_search_cost = MoneyField(null=True)
    image_input_cost = MoneyField(null=True)
    image_output_cost = MoneyField(null=True)
    data_storage_cost = MoneyField(null=True)
    discount_savings = MoneyField(null=True)
    estimated_cost = models.BooleanField(null=True)
    unpriced = models.BooleanField(default=False)
    # The applied prices, as `PriceCard`.
    prices = models.JSONField(null=True)

    temperature = models.FloatField(null=True)
    max_tokens = models.BigIntegerField(null=True)
    top_p = models.FloatField(null=True)
    frequency_penalty = models.FloatField(null=True)
    presence_penalty = models.FloatField(null=True)
    reasoning_effort = models.CharField(max_length=16, null=True)
    reasoning_max_tokens = models.BigIntegerField(null=True)
    response_format = models.JSONField(null=True)
    tools = models.JSONField(null=True)
    tool_choice = models.JSONField(null=True)
    tool_results = models.JSONField(null=True)

    finish_reason = models.CharField(max_length=64, null=True)
    unified_finish_reason = models.CharField(max_length=24, null=True)
    # The HTTP status of the answer, or of the one that the client would have received.
    status_code = models.PositiveSmallIntegerField(null=True)
    has_error = models.BooleanField(null=True)
    canceled = models.BooleanField(null=True)
    error_details = models.JSONField(null=True)

    streamed = models.BooleanField(null=True)
    cached = models.BooleanField(null=True)
    custom_headers = models.JSONField(null=True)
    mode = models.CharField(max_length=16)
    used_mode = models.CharField(max_length=16)
    source = models.CharField(max_length=255, null=True)
    session_id = models.CharField(
        max_length=255,
        null=True,
        help_text="the client's session: an agent's run, a conversation, a response chain",
    )
    user_agent = models.CharField(
        max_length=64, null=True, help_text="the client's program: the first product of its `User-Agent`"
    )
    routing_metadata = models.JSONField(null=True)
    # True while only the sweeper has recorded a request whose worker died; the worker's own record replaces it.
    swept = models.BooleanField(default=False)
    # The level at which the row was written or to which it was reduced.
    retention_level = models.CharField(
        max_length=16, choices=RetentionLevel.choices, default=RetentionLevel.NONE, db_default=RetentionLevel.NONE
    )

    objects = RequestLogQuerySet.as_manager()

    class Meta:
        db_table = "request_log"
        permissions = [("view_content", "Can see message content")]
        # The key in the database is (created_at, id), which also serves searches by time only.
        indexes = [
            models.Index(fields=["project_id", "created_at", "id"], name="log_project"),
            models.Index(fields=["organization_id", "created_at", "id"], name="log_organization"),
            models.Index(fields=["api_key_id", "created_at", "id"], name="log_api_key"),
            models.Index(fields=["project_id", "used_model", "used_provider"], name="log_used"),
            # For rare values.
            models.Index(
                fields=["project_id", "unified_finish_reason", "created_at", "id"],
                name="log_unusual_end",
                condition=~Q(unified_finish_reason="completed"),
            ),
            models.Index(
                fields=["project_id", "finish_reason", "created_at", "id"],
                name="log_finish",
                condition=Q(finish_reason__isnull=False),
            ),
            models.Index(
                fields=["project_id", "source", "created_at", "id"],
                name="log_source",
                condition=Q(source__isnull=False),
            ),
            # The requests of one session, and the newest requests that have any.
            models.Index(
                fields=["organization_id", "session_id", "created_at", "id"],
                name="log_session",
                condition=Q(session_id__isnull=False),
            ),
            models.Index(
                fields=["organization_id", "created_at", "id"],
                name="log_with_session",
                condition=Q(session_id__isnull=False),
            ),
            GinIndex(fields=["custom_headers"], name="log_headers", condition=Q(custom_headers__isnull=False)),
            models.Index(
                fields=["project_id", "created_at", "id"],
                name="log_with_headers",
                condition=Q(custom_headers__isnull=False),
            ),
            models.Index(
                fields=["organization_id", "retention_level"],
                name="log_kept",
                condition=~Q(retention_level=RetentionLevel.NONE),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.created_at:%Y-%m-%d %H:%M:%S} {self.used_provider}/{self.used_model}"


class ActivitySums(models.Model):
    """Sums of one key's requests to one model at one provider on one UTC day."""

    date = models.DateField()
    organization_id = models.UUIDField()
    project_id = models.UUIDField()
    api_key_id = models.UUIDField()
    model = models.CharField(max_length=255)
    provider = models.CharField(max_length=80)
    request_count = models.BigIntegerField(default=0)
    input_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField(default=0)
    cached_tokens = models.BigIntegerField(default=0)
    total_tokens = models.BigIntegerField(default=0)
    error_count = models.BigIntegerField(default=0)
    cache_count = models.BigIntegerField(default=0)
    credits_request_count = models.BigIntegerField(default=0)
    api_keys_request_count = models.BigIntegerField(default=0)
    cost = MoneyField(default=0)
    input_cost = MoneyField(default=0)
    output_cost = MoneyField(default=0)
    cached_input_cost = MoneyField(default=0)
    request_cost = MoneyField(default=0)
    data_storage_cost = MoneyField(default=0)
    image_input_cost = MoneyField(default=0)
    image_output_cost = MoneyField(default=0)
    discount_savings = MoneyField(default=0)
    credits_cost = MoneyField(default=0)
    api_keys_cost = MoneyField(default=0)
    credits_data_storage_cost = MoneyField(default=0)
    api_keys_data_storage_cost = MoneyField(default=0)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.date} {self.model}"


class ActivityDay(ActivitySums):
    """The sums of a whole day, without the rows that still wait as `ActivityDelta`.

    Stored three times: for a key, for a project with all its keys, for an organization with all its projects. `EVERY`
    is the id for "all".
    """

    EVERY = UUID(int=0)

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organization_id", "project_id", "api_key_id", "date", "model", "provider"],
                name="activity_day_once",
            )
        ]
        indexes = [
            # For operators: organizations' days, newest first.
            models.Index(
                fields=["date", "id"],
                name="activity_day_newest",
                condition=Q(project_id=UUID(int=0), api_key_id=UUID(int=0)),
            )
        ]


class ActivityDelta(ActivitySums):
    """The change of a day by one batch of rows: written with the rows, folded into the day soon after. Negative if a
    row was replaced."""

    id = models.BigAutoField(primary_key=True)

    class Meta:
        indexes = [models.Index(fields=["organization_id", "date"], name="activity_delta_organization")]


class LogRetention(models.Model):
    """Agreed retention in days of one organization's log, instead of its plan's."""

    organization = models.OneToOneField(Organization, models.CASCADE, primary_key=True, related_name="+")
    days = models.PositiveIntegerField(validators=[MinValueValidator(1), MaxValueValidator(3650)])

    class Meta:
        verbose_name_plural = "log retention"

    def __str__(self) -> str:
        return f"{self.days} days"


class SavedView(models.Model):
    """Filters of the log that a member saved under a name, for themselves or for all members of the organization."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, models.CASCADE, related_name="+")
    created_by = models.ForeignKey(User, models.CASCADE, related_name="+")
    name = models.CharField(max_length=80)
    # Query string of the log's page: filters and a period.
    query = models.CharField(max_length=2000)
    is_shared = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["organization", "created_by", "name"], name="saved_view_once"),
        ]

    def __str__(self) -> str:
        return self.name


class RefusedHour(models.Model):
    """The requests of one key that were refused for one reason within one hour (UTC)."""

    id = models.BigAutoField(primary_key=True)
    organization_id = models.UUIDField()
    api_key_id = models.UUIDField()
    hour = models.DateTimeField()
    # HTTP status and error code of the answer.
    status = models.PositiveSmallIntegerField()
    code = models.CharField(max_length=64)
    count = models.BigIntegerField()
    last_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organization_id", "hour", "api_key_id", "status", "code"], name="refused_hour_once"
            )
        ]
        indexes = [models.Index(fields=["hour"], name="refused_hour_age")]

    def __str__(self) -> str:
        return f"{self.hour:%Y-%m-%d %H}:00 {self.status} {self.code} x {self.count}"


class TrafficCounts(models.Model):
    """Sums of all organizations' requests in five minutes, in one of several groupings.

    A request counts once in each grouping: everything, model, provider, organization, finish reason
    (`unified_finish_reason`), and the steps (`traffic.STEPS_PER_DOUBLING`) of its duration and time to first token.
    """

    class Aspect(models.TextChoices):
        """The groupings."""

        EVERYTHING = "everything"
        MODEL = "model"
        PROVIDER = "provider"
        ORGANIZATION = "organization"
        END = "end"
        DURATION = "duration"
        FIRST_TOKEN = "first_token"  # noqa: S105 - the name of a grouping

    starts_at = models.DateTimeField()
    aspect = models.CharField(max_length=16, choices=Aspect.choices)
    # The model, the provider, the organization's id, …; empty for everything.
    name = models.CharField(max_length=255)
    requests = models.BigIntegerField(default=0)
    errors = models.BigIntegerField(default=0)
    # Answered from the response cache.
    cache_hits = models.BigIntegerField(default=0)
    input_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField(default=0)
    # The part of the input that was read from a provider's prompt cache.
    cached_tokens = models.BigIntegerField(default=0)
    cost = MoneyField(default=0)
    # The part of the cost that was paid with credits.
    credits_cost = MoneyField(default=0)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.starts_at:%Y-%m-%d %H:%M} {self.aspect} {self.name}".strip()


class TrafficSlot(TrafficCounts):
    """Sums of five minutes or an hour, without the rows that still wait as `TrafficDelta`."""

    # The slot's length: 5 or 60.
    minutes = models.PositiveSmallIntegerField()

    class Meta:
        verbose_name_plural = "traffic"
        constraints = [
            models.UniqueConstraint(fields=["minutes", "starts_at", "aspect", "name"], name="traffic_slot_once")
        ]


class TrafficDelta(TrafficCounts):
    """The change of a slot by one batch of rows: written with the rows, folded soon after. Negative if a row was
    replaced."""


class PerformanceCounts(models.Model):
    """Outcomes of calls of one model at one provider, of all organizations."""

    starts_at = models.DateTimeField()
    # Ids of the catalog: models of customers' own servers are not counted.
    model = models.CharField(max_length=255)
    provider = models.CharField(max_length=80)
    succeeded = models.BigIntegerField(default=0)
    failed = models.BigIntegerField(default=0)
    # Counts of answers by step (`performance.FIRST_TOKEN_STEPS`, `SPEED_STEPS`).
    first_token_steps = ArrayField(models.BigIntegerField())
    speed_steps = ArrayField(models.BigIntegerField())

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.starts_at:%Y-%m-%d %H:%M} {self.provider}/{self.model}"


class PerformanceSlot(PerformanceCounts):
    """Outcomes of an hour or a day (UTC), without those that still wait as `PerformanceDelta`."""

    # The slot's length: 60 or 1440.
    minutes = models.PositiveSmallIntegerField()

    class Meta:
        verbose_name_plural = "performance"
        constraints = [
            models.UniqueConstraint(fields=["minutes", "model", "starts_at", "provider"], name="performance_slot_once")
        ]


class PerformanceDelta(PerformanceCounts):
    """The outcomes of one batch of rows within an hour: written with the rows, folded soon after."""
