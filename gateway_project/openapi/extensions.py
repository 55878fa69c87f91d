"""drf-spectacular extensions for our fields and authentication. Imported once, for its effect: it registers them."""

# drf-spectacular has no types.
# mypy: allow-untyped-calls

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension, OpenApiSerializerFieldExtension

from apps.kernel.rest.pages import CURSOR

AMOUNT = r"^(0|[1-9][0-9]{0,11})(\.[0-9]{1,12})?$"
_MOMENT = "An ISO 8601 date or time; UTC if it has no offset."
Record = dict[str, Any]


class _OfField(OpenApiSerializerFieldExtension):
    """A field whose schema `of` states for each direction."""

    match_subclasses = True

    def map_serializer_field(self, auto_schema: Any, direction: str) -> Record:
        """Return the field's schema."""
        return self.of(self.target, asked=direction == "request")

    def of(self, field: Any, *, asked: bool) -> Record:
        """Return the schema of a value, when it is `asked` for or else answered."""
        raise NotImplementedError


class OfText(_OfField):
    """Text; a request's schema states whether it may be blank."""

    target_class = "apps.kernel.rest.serializers.TextField"

    def of(self, field: Any, *, asked: bool) -> Record:
        """Return a bounded string."""
        schema: Record = {"type": "string"}
        if not asked:
            return schema
        if field.max_length:
            schema["maxLength"] = field.max_length
        if field.min_length or not field.allow_blank:
            schema["minLength"] = field.min_length or 1
        return {**schema, "pattern": field.pattern}


class OfCursor(OfText):
    """A page's end."""

    target_class = "apps.kernel.rest.serializers.CursorField"
    priority = 1

    def of(self, field: Any, *, asked: bool) -> Record:
        """Return the pattern of a cursor."""
        return {"type": "string", "pattern": f"^{CURSOR}$"}


class OfEmail(OfText):
    """An e-mail address."""

    target_class = "apps.kernel.rest.serializers.EmailField"
    priority = 1

    def of(self, field: Any, *, asked: bool) -> Record:
        """Return a string of the format."""
        return {"type": "string", "format": "email", "maxLength": field.max_length}


class OfFlag(_OfField):
    """True or false."""

    target_class = "apps.kernel.rest.serializers.BooleanField"

    def of(self, field: Any, *, asked: bool) -> Record:
        """Return a boolean."""
        return {"type": "boolean"}


class OfQueryFlag(OfFlag):
    """True or false in a query."""

    target_class = "apps.kernel.rest.serializers.QueryBooleanField"


class OfWhole(_OfField):
    """A whole number within bounds."""

    target_class = "apps.kernel.rest.serializers.IntegerField"

    def of(self, field: Any, *, asked: bool) -> Record:
        """Return a bounded integer."""
        return {"type": "integer", "minimum": field.low, "maximum": field.high}


class OfMoney(_OfField):
    """USD as a decimal string."""

    target_class = "apps.kernel.rest.serializers.DecimalTextField"

    def of(self, field: Any, *, asked: bool) -> Record:
        """Return a decimal string; it may be negative in responses."""
        pattern = AMOUNT if asked else AMOUNT.replace("^", "^-?", 1)
        return {"type": "string", "pattern": pattern, "description": "USD, as a decimal string", "examples": ["12.5"]}


class OfAmount(_OfField):
    """USD of at least a minimum, as a number or a decimal string."""

    target_class = "apps.organizations.serializers.Amount"
    priority = 1

    def of(self, field: Any, *, asked: bool) -> Record:
        """Return both forms."""
        least = field.minimum
        text = {
            0: AMOUNT,
            5: r"^([5-9]|[1-9][0-9]{1,11})(\.[0-9]{1,12})?$",
            10: r"^[1-9][0-9]{1,11}(\.[0-9]{1,12})?$",
        }[least]
        return {
            "oneOf": [
                {"type": "number", "minimum": least, "exclusiveMaximum": 10**12},
                {"type": "string", "pattern": text},
            ],
            "description": f"USD, at least {least}, as a decimal string or a number",
        }


class OfMegabytes(_OfField):
    """A file's size."""

    target_class = "apps.guardrails.serializers.Megabytes"

    def of(self, field: Any, *, asked: bool) -> Record:
        """Return a bounded number."""
        return {"type": "number", "minimum": 0.01, "maximum": 1000}


class OfFileTypes(_OfField):
    """MIME types."""

    target_class = "apps.guardrails.serializers.FileTypes"

    def of(self, field: Any, *, asked: bool) -> Record:
        """Return a list of strings."""
        return {"type": "array", "items": {"type": "string"}, "maxItems": 100}


class OfMoment(_OfField):
    """A date or a time."""

    target_class = "apps.kernel.rest.serializers.DateTimeField"

    def of(self, field: Any, *, asked: bool) -> Record:
        """Return both forms; a time alone is answered."""
        if not asked:
            return {"type": "string", "format": "date-time"}
        return {
            "anyOf": [{"type": "string", "format": "date-time"}, {"type": "string", "format": "date"}],
            "description": _MOMENT,
        }


class OfPassword(OfText):
    """The password of an account."""

    target_class = "apps.organizations.serializers.Password"
    priority = 1

    def of(self, field: Any, *, asked: bool) -> Record:
        """Return what Django's validators ask for, as far as a schema can say it."""
        return {"type": "string", "format": "password", "minLength": 8, "maxLength": field.max_length}


class SessionScheme(OpenApiAuthenticationExtension):
    """People who are signed in."""

    target_class = "apps.organizations.credentials.sessions.SessionAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> Record:
        """Return nothing new: the schemes are kept by hand."""
        return {}


class ApiKeyOrSessionScheme(OpenApiAuthenticationExtension):
    """API keys in either header, or people who are signed in."""

    target_class = "apps.keys.authenticate.ApiKeyOrSession"
    name = "apiKeyOrSession"

    def get_security_definition(self, auto_schema: Any) -> Record:
        """Return nothing new: the schemes are kept by hand."""
        return {}
