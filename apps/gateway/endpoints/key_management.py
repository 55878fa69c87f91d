"""`/v1/keys`: API keys of an organization in OpenRouter's words, for programs that manage keys there.

A workspace is a project, and a key's `hash` is its id. `limit` is the key's period limit where it has one, else its
usage limit. Fields that have no meaning here are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.gateway.endpoints.account import RESETS, report_keys
from apps.kernel.errors import NotFound
from apps.kernel.rest.endpoint import described
from apps.kernel.rest.envelopes import InvalidFields, Issue
from apps.kernel.rest.serializers import (
    BooleanField,
    ChoiceField,
    DateTimeField,
    ExactJSONRenderer,
    ExactNumberField,
    FutureMoment,
    QueryBooleanField,
    QueryIntegerField,
    TextField,
)
from apps.keys import actions
from apps.keys.access import access_key, access_keys
from apps.keys.models import ApiKey
from apps.organizations.credentials.management_keys import require_one_scope
from apps.organizations.credentials.sessions import MemberEndpoint
from apps.organizations.models import ManagementKey, ManagementScope, Organization, Project
from apps.organizations.serializers import Amount

# Keys of a page.
PAGE: Final = 100
MAX_OFFSET: Final = 1_000_000
_PERIODS: Final = {reset: period for period, reset in RESETS.items()}


class _OnlyKnownFields(serializers.Serializer[Any]):
    """A body whose unknown fields are refused by name."""

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return the fields. Raises ValidationError for unknown ones, and for limits without BYOK."""
        faults = {name: ["Not supported here"] for name in self.initial_data if name not in self.fields}
        if attrs.pop("include_byok_in_limit", True) is False:
            faults["include_byok_in_limit"] = ["Must be true: limits count what your own provider keys pay, too"]
        if faults:
            raise serializers.ValidationError(faults)
        return attrs


class NewManagedKeyShape(_OnlyKnownFields):
    """Body of `POST /v1/keys`; without `workspace_id` the key belongs to the oldest active project."""

    name = TextField(max_length=255)
    limit = Amount(minimum=0, required=False, allow_null=True, help_text="USD, a number")
    limit_reset = ChoiceField(list(_PERIODS), required=False, allow_null=True)
    include_byok_in_limit = BooleanField(required=False)
    expires_at = FutureMoment(required=False, allow_null=True)
    workspace_id = TextField(max_length=100, required=False)


class ManagedKeyChangesShape(_OnlyKnownFields):
    """Body of `PATCH /v1/keys/{hash}`; fields that are absent keep their values."""

    name = TextField(max_length=255, required=False)
    disabled = BooleanField(required=False)
    limit = Amount(minimum=0, required=False, allow_null=True, help_text="USD, a number")
    limit_reset = ChoiceField(list(_PERIODS), required=False, allow_null=True)
    include_byok_in_limit = BooleanField(required=False)


class ManagedKeysQuery(serializers.Serializer[Any]):
    """The query of `GET /v1/keys`; without `workspace_id` all projects' keys are listed."""

    include_disabled = QueryBooleanField(default=False)
    offset = QueryIntegerField(low=0, high=MAX_OFFSET, default=0)
    workspace_id = TextField(max_length=100, required=False)


class ManagedKeyShape(serializers.Serializer[Any]):
    """An API key without its token, in OpenRouter's words; amounts are USD."""

    hash = serializers.CharField(help_text="The key's id")
    name = serializers.CharField()
    label = serializers.CharField(help_text="The masked token")  # type: ignore[assignment]  # the name on the wire
    disabled = serializers.BooleanField()
    limit = ExactNumberField(allow_null=True)
    limit_remaining = ExactNumberField(allow_null=True)
    limit_reset = serializers.ChoiceField(list(_PERIODS), allow_null=True)
    include_byok_in_limit = serializers.BooleanField()
    usage = ExactNumberField()
    usage_daily = ExactNumberField()
    usage_weekly = ExactNumberField()
    usage_monthly = ExactNumberField()
    byok_usage = ExactNumberField()
    byok_usage_daily = ExactNumberField()
    byok_usage_weekly = ExactNumberField()
    byok_usage_monthly = ExactNumberField()
    workspace_id = serializers.CharField(help_text="The id of the key's project")
    creator_user_id = serializers.CharField()
    external_user = serializers.CharField(allow_null=True)
    expires_at = DateTimeField(allow_null=True)
    created_at = DateTimeField()
    updated_at = DateTimeField()
    last_used_at = DateTimeField(allow_null=True, help_text="Not recorded: null")


class SpendingLimit(NamedTuple):
    """A key's limit in USD, None for none, and the period after which it begins again; empty for the usage limit."""

    amount: Decimal | None
    period: str

    def columns_after(self, before: SpendingLimit) -> dict[str, Any]:
        """Return the columns to change. A usage limit beside a period limit stays, unless this limit replaces it."""
        if self.period:
            columns: dict[str, Any] = {"period_limit": self.amount, "period": self.period}
            return columns if before.period else {**columns, "usage_limit": None}
        if not before.period:
            return {"usage_limit": self.amount}
        columns = {"period_limit": None, "period": ""}
        return columns if self.amount is None else {**columns, "usage_limit": self.amount}


_NO_LIMIT: Final = SpendingLimit(None, "")


class ManagedKeys(MemberEndpoint):
    """`GET /v1/keys`, `POST /v1/keys`."""

    renderer_classes = (ExactJSONRenderer,)

    @described({"data": ManagedKeyShape(many=True)}, query=ManagedKeysQuery, refuses=(403, 404))
    def get(self, request: Request) -> Response:
        """List API keys, newest first, 100 at a time; disabled ones with `include_disabled=true`."""
        query = self.read_query(ManagedKeysQuery)
        seen = access_keys(self.user, project_id=query.get("workspace_id"), everyones=True)
        keys = seen.keys if query["include_disabled"] else seen.keys.filter(status=ApiKey.Status.ACTIVE)
        rows = list(keys.select_related("project__organization").order_by("-created_at", "-id")[_page(query["offset"])])
        return Response({"data": _shapes(rows)})

    @described(
        {"data": ManagedKeyShape(), "key": serializers.CharField()},
        body=NewManagedKeyShape,
        refuses=(403, 404, 410),
        status=201,
    )
    def post(self, request: Request) -> Response:
        """Create an API key; only this answer contains its token."""
        fields = self.read(NewManagedKeyShape)
        limit = _limit_of(fields, _NO_LIMIT)
        project_id = fields.get("workspace_id") or self._default_project().id
        created = actions.create_api_key(
            user=self.user,
            project_id=project_id,
            description=fields["name"],
            expires_at=fields.get("expires_at"),
            **limit.columns_after(_NO_LIMIT),
        )
        [shape] = _shapes([created.key])
        return Response({"data": shape, "key": created.token}, status=201)

    def _default_project(self) -> Project:
        """Return the oldest active project of the user's only organization. Raises InvalidFields, NotFound."""
        organizations = Organization.objects.filter(memberships__user=self.user)
        active = Project.objects.filter(
            organization__in=organizations.exclude(status=Organization.Status.DELETED), status=Project.Status.ACTIVE
        )
        if len(set(active.values_list("organization_id", flat=True))) > 1:
            raise InvalidFields([Issue("workspace_id", "Required: you are a member of several organizations")])
        project = active.order_by("created_at", "id").first()
        if project is None:
            raise NotFound("The organization has no active project")
        return project


class OneManagedKey(MemberEndpoint):
    """`GET /v1/keys/{hash}`, `PATCH /v1/keys/{hash}`, `DELETE /v1/keys/{hash}`."""

    renderer_classes = (ExactJSONRenderer,)

    @described({"data": ManagedKeyShape()}, refuses=(403, 404))
    def get(self, request: Request, key_hash: str) -> Response:
        """Show an API key."""
        [shape] = _shapes([access_key(self.user, key_hash)])
        return Response({"data": shape})

    @described({"data": ManagedKeyShape()}, body=ManagedKeyChangesShape, refuses=(403, 404))
    def patch(self, request: Request, key_hash: str) -> Response:
        """Change an API key's name and limit, or disable it.

        A limit without `limit_reset` keeps the period of the limit before; null removes it.
        """
        key = access_key(self.user, key_hash)
        fields = self.read(ManagedKeyChangesShape)
        changes: dict[str, Any] = {}
        if "name" in fields:
            changes["description"] = fields["name"]
        if "disabled" in fields:
            changes["status"] = ApiKey.Status.INACTIVE if fields["disabled"] else ApiKey.Status.ACTIVE
        if "limit" in fields or "limit_reset" in fields:
            before = SpendingLimit(key.period_limit if key.period else key.usage_limit, key.period)
            changes |= _limit_of(fields, before).columns_after(before)
        if not changes:
            raise InvalidFields([Issue("", "Give at least one of name, disabled, limit and limit_reset")])
        caller: Any = request.auth
        is_limited = changes.get("usage_limit", key.usage_limit) != key.usage_limit
        if is_limited and isinstance(caller, ManagementKey):
            require_one_scope(caller, ManagementScope.LIMITS)
        [shape] = _shapes([actions.change_api_key(key=key, changes=changes)])
        return Response({"data": shape})

    @described({"deleted": serializers.BooleanField()}, refuses=(403, 404))
    def delete(self, request: Request, key_hash: str) -> Response:
        """Delete an API key; it stops working."""
        actions.delete_api_key(key=access_key(self.user, key_hash))
        return Response({"deleted": True})


def _page(offset: int) -> slice:
    return slice(offset, offset + PAGE)


def _limit_of(fields: Mapping[str, Any], before: SpendingLimit) -> SpendingLimit:
    """Return the limit that a body asks for. Raises InvalidFields for a period without a limit."""
    amount = fields.get("limit", before.amount)
    period = _PERIODS.get(fields["limit_reset"], "") if "limit_reset" in fields else before.period
    if amount is None and fields.get("limit_reset"):
        raise InvalidFields([Issue("limit", "Required with limit_reset")])
    return SpendingLimit(amount, period if amount is not None else "")


def _shapes(keys: list[ApiKey]) -> list[dict[str, Any]]:
    """Return keys as they are shown, in their order."""
    now = timezone.now()
    reports: dict[Any, dict[str, Any]] = {}
    for organization in {key.project.organization_id: key.project.organization for key in keys}.values():
        mine = [key for key in keys if key.project.organization_id == organization.id]
        for key, report in zip(mine, report_keys(mine, organization, now), strict=True):
            reports[key.id] = {
                **report,
                "hash": str(key.id),
                "name": key.description,
                "disabled": key.status != ApiKey.Status.ACTIVE,
                "external_user": None,
                "expires_at": key.expires_at,
                "created_at": key.created_at,
                "updated_at": key.updated_at,
                "last_used_at": None,
            }
    return [dict(ManagedKeyShape(reports[key.id]).data) for key in keys]
