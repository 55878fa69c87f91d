"""Serializers of log sinks: fields and limits of the management API, and the requirements of each kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from rest_framework import serializers

from apps.destinations.credentials import MAX_KEY, WebhookSecret, WebhookSecretField
from apps.kernel.rest.envelopes import InvalidFields, Issue, camel
from apps.kernel.rest.serializers import (
    BooleanField,
    CamelModelSerializer,
    CamelSerializer,
    ChoiceField,
    NameField,
    TextField,
)
from apps.log_sinks.actions import NewSink
from apps.log_sinks.kinds import JSON_ARRAY, JSON_LINES, BucketKeys, Credentials, OtlpKeys
from apps.log_sinks.models import LogSink

# As in a path: names of buckets, and prefixes of objects' keys.
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
_PREFIX: Final = re.compile(r"(?:[A-Za-z0-9_=-][A-Za-z0-9._=-]*/)*")
_REGION: Final = re.compile(r"[a-z0-9-]{1,32}")
# Credentials and options of each kind: required fields, and optional ones.
_CREDENTIALS: Final = {
    LogSink.Kind.WEBHOOK: ("secret",),
    LogSink.Kind.S3: ("access_key_id", "secret_access_key"),
    LogSink.Kind.OTLP: ("public_key", "secret_key"),
}
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {LogSink.Kind.S3: ("bucket", "region")}
_POSSIBLE: Final[Mapping[str, tuple[str, ...]]] = {
    LogSink.Kind.WEBHOOK: ("format",),
    LogSink.Kind.S3: ("bucket", "region", "prefix"),
}
_MAKE: Final[Mapping[str, Callable[..., Credentials]]] = {
    LogSink.Kind.WEBHOOK: WebhookSecret,
    LogSink.Kind.S3: BucketKeys,
    LogSink.Kind.OTLP: OtlpKeys,
}
_OF_KINDS: Final = (
    "format",
    "bucket",
    "region",
    "prefix",
    *(name for names in _CREDENTIALS.values() for name in names),
)


class _KeyField(TextField):
    """A part of credentials: printable ASCII without spaces."""

    def __init__(self, *, with_colons: bool = True, **options: Any) -> None:
        super().__init__(max_length=MAX_KEY, required=False, **options)
        self._with_colons = with_colons

    def to_internal_value(self, data: Any) -> str:
        """Return the text. Raises ValidationError."""
        text = super().to_internal_value(data)
        if not (text.isascii() and text.isprintable()) or " " in text:
            raise serializers.ValidationError("Must be printable ASCII characters without spaces")
        if ":" in text and not self._with_colons:
            raise serializers.ValidationError("Must be without a colon")
        return text


class _PatternField(TextField):
    """A text that matches a pattern."""

    def __init__(self, pattern: re.Pattern[str], words: str, **options: Any) -> None:
        super().__init__(required=False, **options)
        self._pattern, self._words = pattern, words

    def to_internal_value(self, data: Any) -> str:
        """Return the text. Raises ValidationError."""
        text = super().to_internal_value(data)
        if not self._pattern.fullmatch(text):
            raise serializers.ValidationError(self._words)
        return text


class _CredentialsShape(CamelSerializer):
    """The credentials of every kind; each kind accepts only its own."""

    secret = WebhookSecretField()
    access_key_id = _KeyField(help_text="For a bucket")
    secret_access_key = _KeyField(help_text="For a bucket")
    # In basic authentication, a colon ends the user name.
    public_key = _KeyField(with_colons=False, help_text="For an OTLP endpoint: the user of basic authentication")
    secret_key = _KeyField(help_text="For an OTLP endpoint: the password of basic authentication")


class NewSinkShape(_CredentialsShape):
    """Body of `POST /log-sinks`; the kind determines which other fields are required."""

    organization_id = TextField(max_length=100)
    name = NameField(max_length=100)
    kind = ChoiceField(LogSink.Kind.values)
    url = TextField(max_length=500, help_text="For a bucket: the service's endpoint; otherwise the endpoint URL")
    include_content = BooleanField(default=False)
    format = ChoiceField([JSON_LINES, JSON_ARRAY], required=False, help_text="For a webhook")
    bucket = _PatternField(_BUCKET, "Must be the name of a bucket", max_length=63, help_text="For a bucket")
    region = _PatternField(_REGION, "Must be a region such as eu-central-1", max_length=32, help_text="For a bucket")
    prefix = _PatternField(
        _PREFIX,
        "Must be empty, or words of letters, digits and ._=- that each end with a slash",
        max_length=200,
        allow_blank=True,
        help_text="For a bucket: prefix of object keys",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Check the fields against the kind. Raises ValidationError."""
        kind = attrs["kind"]
        needed = (*_CREDENTIALS[kind], *_NEEDED.get(kind, ()))
        possible = (*_CREDENTIALS[kind], *_POSSIBLE.get(kind, ()))
        wrong = {camel(name): ["Required"] for name in needed if name not in attrs}
        wrong |= {
            camel(name): [f"Not a field of the kind {kind}"]
            for name in _OF_KINDS
            if name in attrs and name not in possible
        }
        if kind != LogSink.Kind.WEBHOOK and "?" in attrs["url"]:
            wrong["url"] = ["Must be a URL without a query"]
        if wrong:
            raise serializers.ValidationError(wrong)
        return attrs


class SinkChangesShape(_CredentialsShape):
    """Body of `PATCH /log-sinks/{id}`; absent fields keep their values, credentials are replaced as a whole."""

    name = NameField(max_length=100, required=False)
    status = ChoiceField([LogSink.Status.ACTIVE, LogSink.Status.INACTIVE], required=False)
    include_content = BooleanField(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Require the status if nothing else changes. Raises ValidationError."""
        if not attrs:
            raise serializers.ValidationError({"status": ["Required"]})
        return attrs


class SinkShape(CamelModelSerializer):
    """A log sink with masked credentials and delivery state."""

    options = serializers.DictField(read_only=True)

    class Meta:
        model = LogSink
        fields = read_only_fields = [
            *("id", "organization_id", "name", "kind", "url", "options", "include_content", "masked_credentials"),
            *("status", "created_at", "updated_at", "failures", "failing_since", "last_error", "last_error_at"),
            *("next_attempt_at", "last_delivered_at", "delivered_rows", "dropped_rows"),
        ]


def fields_of_others(kind: str) -> set[str]:
    """Return the API names of fields that a kind does not have; empty for an unknown kind."""
    if kind not in _CREDENTIALS:
        return set()
    own = (*_CREDENTIALS[LogSink.Kind(kind)], *_POSSIBLE.get(kind, ()))
    return {camel(name) for name in _OF_KINDS if name not in own}


def new_sink(fields: Mapping[str, Any]) -> NewSink:
    """Return the sink described by a body of `NewSinkShape`."""
    kind = fields["kind"]
    options = {name: fields[name] for name in _POSSIBLE.get(kind, ()) if fields.get(name)}
    return NewSink(
        name=fields["name"],
        kind=kind,
        url=fields["url"],
        options=options,
        include_content=fields["include_content"],
        credentials=_MAKE[kind](**{name: fields[name] for name in _CREDENTIALS[kind]}),
    )


def changes_of(kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes in a body of `SinkChangesShape`, for a sink of a kind. Raises InvalidFields."""
    own = _CREDENTIALS[LogSink.Kind(kind)]
    given = [name for name in _OF_KINDS if name in fields]
    issues = [Issue(camel(name), f"Not a field of the kind {kind}") for name in given if name not in own]
    if given:
        issues += [Issue(camel(name), "Required") for name in own if name not in fields]
    if issues:
        raise InvalidFields(issues)
    changes = {name: value for name, value in fields.items() if name not in given}
    return {**changes, "credentials": _MAKE[kind](**{name: fields[name] for name in own})} if given else changes
