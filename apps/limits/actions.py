"""Actions on limits: create, change, delete, each in one transaction with its entry in the audit log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from apps.catalog import catalog_cache
from apps.catalog.models import Model, Provider
from apps.catalog.offers import resolve
from apps.kernel.errors import Gone, InvalidRequest
from apps.kernel.ids import find_id
from apps.kernel.postgres.rows import find_row, lock_row
from apps.kernel.rest.envelopes import InvalidFields, Issue, camel
from apps.keys.models import ApiKey, ProviderKey
from apps.keys.provider_keys import find_by_alias
from apps.limits.access import NO_LIMIT, limits_of
from apps.limits.applied import MAX_APPLYING, OWN_SERVER
from apps.limits.models import Limit, PlanLimit
from apps.limits.plan_limits import limit_of, plan_limits_of
from apps.organizations.access import NO_ORGANIZATION, people_of
from apps.organizations.journal import audit
from apps.organizations.models import DELETED, Organization, Project, User
from apps.organizations.teams.access import accounts_of, teams_of

# Limits of one organization: each policy holds those that may hold for its key.
MAX_LIMITS = 200
# Hours or days that count together, and counters that a single request reads.
MAX_ROLLING, MAX_COUNTERS = 31, 100
# Amounts that Valkey's numbers hold exactly, with room for sums: USD, and requests or tokens.
MAX_USD, MAX_COUNT = 1_000_000, 1_000_000_000_000
# Teams for which one request counts: its key's and its project's, and the two that these are part of.
MAX_TEAMS = 4
# Models that a limit reroutes to.
MAX_REROUTE_MODELS = 5
_NOTED = (
    *("name", "scope", "model", "provider", "counts", "window", "rolling", "time_zone"),
    *("amount", "action", "reroute_models"),
)
_OF_RAISE = ("raised_amount", "raised_until", "raise_reason")


@transaction.atomic
def create_limit(*, organization: Organization, fields: Mapping[str, Any]) -> Limit:
    """Store a limit; it counts from 0 and holds for requests that are admitted from now on.

    `fields` are those of `NewLimitShape`. Raises InvalidFields, InvalidRequest at a limit of limits, NotFound if the
    organization was deleted meanwhile.
    """
    # The lock serializes concurrent creation and deletion of the organization.
    lock_row(organization, NO_ORGANIZATION)
    row = draft_limit(organization=organization, fields=fields)
    others = list(limits_of(organization))
    _check_name(row, others)
    if len(others) >= MAX_LIMITS:
        raise InvalidRequest(f"Maximum {MAX_LIMITS} limits per organization", code="limit_limit")
    together = [*others, row, *plan_limits_of(organization, [*others, row])]
    if most_applying(together) > MAX_APPLYING:
        raise InvalidRequest(
            f"More than {MAX_APPLYING} limits would hold for one request; delete one first", code="limit_limit"
        )
    if most_applying(together, counted=lambda one: one.rolling or 1) > MAX_COUNTERS:
        raise InvalidRequest(
            f"The hours and days of all limits that would hold for one request are more than {MAX_COUNTERS} together",
            code="limit_limit",
        )
    row.save()
    starts_on = None if row.starts_on is None else row.starts_on.isoformat()
    details = {camel(name): getattr(row, name) for name in _NOTED}
    details |= {"startsOn": starts_on, "scopeId": scope_id_of(row)}
    audit.record("limit.create", organization_id=organization.id, resource=row, details=details)
    return row


@transaction.atomic
def draft_limit(*, organization: Organization, fields: Mapping[str, Any]) -> Limit:
    """Return a checked limit that is not stored; `fields` as in `create_limit`. Raises InvalidFields."""
    columns = {name: value for name, value in fields.items() if name not in ("organization_id", "scope_id")}
    columns |= _owner_of(organization, fields["scope"], fields.get("scope_id"))
    row = Limit(organization=organization, **columns)
    _check(row)
    _check_model(row)
    _check_provider(row)
    _check_reroute(row)
    return row


@transaction.atomic
def change_limit(*, limit: Limit, changes: Mapping[str, Any]) -> Limit:
    """Set name, amount, action with its models, or temporary raise of a limit; its counter stays.

    Raises InvalidFields, NotFound if it was deleted meanwhile.
    """
    row = find_row(Limit.objects.select_for_update(no_key=True), limit.pk, NO_LIMIT)
    columns = dict(changes)
    if columns.get("raised_amount", row.raised_amount) is None:
        columns |= {"raised_amount": None, "raised_until": None, "raise_reason": ""}
    if columns.get("action", row.action) != Limit.Action.REROUTE:
        columns.setdefault("reroute_models", [])
    details = audit.changes_of(row, columns)
    for name, value in columns.items():
        setattr(row, name, value)
    _check(row, is_raise_new=any(name in changes for name in _OF_RAISE))
    if "action" in changes or "reroute_models" in changes:
        _check_reroute(row)
    if "name" in changes:
        _check_name(row, limits_of(row.organization).exclude(pk=row.pk))
    audit.record("limit.update", organization_id=row.organization_id, resource=row, details=details)
    row.save(update_fields=[*columns, "updated_at"])
    return row


@transaction.atomic
def delete_limit(*, limit: Limit) -> None:
    """Delete a limit; requests in progress still end with their holds. Raises NotFound if it already is deleted."""
    row = find_row(Limit.objects.select_for_update(), limit.pk, NO_LIMIT)
    audit.record("limit.delete", organization_id=row.organization_id, resource=row, details={"name": row.name})
    row.delete()


def check_plan_limit(row: PlanLimit) -> None:
    """Raise InvalidFields for a limit of a plan whose columns contradict each other."""
    limit = limit_of(row, None)
    _check(limit)
    if row._state.adding:
        # It never changes, but the catalog does.
        _check_model(limit)
    _check_reroute(limit)
    _check_name(limit, PlanLimit.objects.filter(plan=row.plan).exclude(pk=row.pk))


def most_applying(limits: Iterable[Limit], counted: Callable[[Limit], int] = lambda one: 1) -> int:
    """Return a number of limits that no request exceeds: those of all, with the most of any project, member and key,
    and of the four teams that a request may count for.

    End users count by project, each of them with the limits for all of the project's and its own. `counted` says as how
    many a limit counts.
    """
    numbers: Counter[tuple[str, UUID | None, str]] = Counter()
    for one in limits:
        owner = one.team_id or one.project_id or one.member_id or one.api_key_id
        numbers[_GROUPS.get(one.scope, "all"), owner, one.end_user] += counted(one)
    most = sum(number for (group, _, _), number in numbers.items() if group == "all")
    for group in ("project", "member", "key"):
        most += max((number for (of, _, _), number in numbers.items() if of == group), default=0)
    of_teams = sorted((number for (of, _, _), number in numbers.items() if of == "team"), reverse=True)
    most += sum(of_teams[:MAX_TEAMS])
    each = {owner: number for (of, owner, end_user), number in numbers.items() if of == "end_user" and not end_user}
    own: dict[UUID | None, int] = {}
    for (of, owner, end_user), number in numbers.items():
        if of == "end_user" and end_user:
            own[owner] = max(own.get(owner, 0), number)
    return most + max((each.get(owner, 0) + own.get(owner, 0) for owner in each.keys() | own.keys()), default=0)


def scope_id_of(limit: Limit) -> UUID | None:
    """Return the id of the team, project, member or key that a limit is for."""
    return limit.team_id or limit.project_id or limit.member_id or limit.api_key_id


_GROUPS: dict[str, str] = {
    Limit.Scope.TEAM: "team",
    Limit.Scope.PROJECT: "project",
    Limit.Scope.MEMBER: "member",
    Limit.Scope.KEY: "key",
    Limit.Scope.END_USER: "end_user",
}


def _owner_of(organization: Organization, scope: str, scope_id: str | None) -> dict[str, Any]:
    """Return the column with the team, project, member or key that a limit is for. Raises InvalidFields."""
    if scope in (Limit.Scope.ORGANIZATION, Limit.Scope.MODEL, Limit.Scope.PROVIDER):
        if scope_id is not None:
            raise InvalidFields([Issue("scopeId", f"Not a field of the scope {scope}")])
        return {}
    if scope_id is None:
        raise InvalidFields([Issue("scopeId", "Required")])
    noun, column, rows = _candidates(organization, scope)
    identifier = find_id(scope_id)
    found = None if identifier is None else rows.filter(pk=identifier).first()
    if found is None:
        raise InvalidFields([Issue("scopeId", f"Must be the id of a {noun} of this organization")])
    return {column: found}


def _candidates(organization: Organization, scope: str) -> tuple[str, str, QuerySet[Any]]:
    """Return the noun, the column and the rows that a limit of a scope may be for."""
    if scope == Limit.Scope.TEAM:
        # The lock keeps it from being deleted meanwhile.
        return "team", "team", teams_of(organization).select_for_update(no_key=True)
    if scope == Limit.Scope.MEMBER:
        people, accounts = people_of(organization), accounts_of(organization)
        users = User.objects.filter(Q(memberships__in=people) | Q(service_account__in=accounts))
        return "member", "member", users.distinct()
    if scope == Limit.Scope.KEY:
        return "key", "api_key", ApiKey.objects.exclude(status=DELETED).filter(project__organization=organization)
    return "project", "project", Project.objects.exclude(status=DELETED).filter(organization=organization)


def _check(row: Limit, *, is_raise_new: bool = True) -> None:
    """Raise InvalidFields for a row whose columns contradict each other."""
    issues = []
    if row.scope == Limit.Scope.MODEL and not row.model:
        issues.append(Issue("model", "Required"))
    if row.rolling is not None and row.window not in (Limit.Window.HOUR, Limit.Window.DAY):
        issues.append(Issue("rolling", f"Not a field of the window {row.window}; the last hours or days may count"))
    if row.starts_on is not None and row.window not in (Limit.Window.WEEK, Limit.Window.MONTH):
        issues.append(
            Issue("startsOn", f"Not a field of the window {row.window}; weeks and months may begin on a date")
        )
    if row.scope == Limit.Scope.PROVIDER and not row.provider:
        issues.append(Issue("provider", "Required"))
    if row.scope != Limit.Scope.END_USER and row.end_user:
        issues.append(Issue("endUser", f"Not a field of the scope {row.scope}"))
    for name in ("amount", "raised_amount"):
        amount = getattr(row, name)
        if amount is not None and (fault := _fault_of(row, amount)):
            issues.append(Issue(camel(name), fault))
    if is_raise_new or (row.raised_until is not None and row.raised_until > timezone.now()):
        issues += _faults_of_raise(row)
    if issues:
        raise InvalidFields(issues)


def _check_model(row: Limit) -> None:
    """Raise InvalidFields for another name of a model of the catalog, which no answer has: an alias, or a name with a
    provider. An alias of an own server's model is one of its names."""
    if not row.model or "*" in row.model or row.model.startswith(OWN_SERVER):
        return
    if row.organization_id is not None and find_by_alias(row.organization_id, row.model):
        return
    try:
        found = resolve(catalog_cache.current(), row.model)
    except (InvalidRequest, Gone):
        # A model that comes later, or is no longer served.
        return
    if found.model.id != row.model:
        provider = "" if found.provider is None else f", and {found.provider.id} in `provider`"
        raise InvalidFields(
            [Issue("model", f"Not the id of a model but another name: give {found.model.id}{provider}")]
        )


def _check_provider(row: Limit) -> None:
    """Raise InvalidFields for a provider that neither the catalog nor the organization has."""
    if not row.provider:
        return
    prefix, is_own, own_name = row.provider.partition(":")
    if is_own:
        keys = ProviderKey.objects.filter(organization=row.organization, provider="custom", provider_name=own_name)
        is_known = prefix == "custom" and keys.exists()
    else:
        is_known = Provider.objects.filter(pk=row.provider).exists()
    if not is_known:
        raise InvalidFields([Issue("provider", "Must be the id of a provider, or custom: and the name of your own")])


def _check_reroute(row: Limit) -> None:
    """Raise InvalidFields unless a limit that reroutes has models, and no other has."""
    if row.action != Limit.Action.REROUTE:
        if row.reroute_models:
            raise InvalidFields([Issue("rerouteModels", f"Not a field of the action {row.action}")])
        return
    if not row.reroute_models:
        raise InvalidFields([Issue("rerouteModels", "Required")])
    known = set(Model.objects.filter(pk__in=row.reroute_models).values_list("pk", flat=True))
    for name in row.reroute_models:
        if name not in known:
            raise InvalidFields([Issue("rerouteModels", f"No model has the id {name}")])


def _faults_of_raise(row: Limit) -> list[Issue]:
    if row.raised_amount is None:
        is_stated = row.raised_until is not None or row.raise_reason
        return [Issue("raisedAmount", "Required")] if is_stated else []
    if row.raised_until is None:
        return [Issue("raisedUntil", "Required")]
    issues = []
    if row.raised_until <= timezone.now():
        issues.append(Issue("raisedUntil", "Must be in the future"))
    if not row.raise_reason:
        issues.append(Issue("raiseReason", "Required"))
    if row.raised_amount <= row.amount:
        issues.append(Issue("raisedAmount", "Must be above the amount"))
    return issues


def _fault_of(row: Limit, amount: Any) -> str:
    if row.counts == Limit.Counts.USD:
        if amount > MAX_USD:
            return f"Must be at most {MAX_USD} USD"
        return "" if amount == round(amount, 9) else "Must have at most nine digits after the point"
    if amount != int(amount):
        return f"Must be a whole number of {row.counts.replace('_', ' ')}"
    return "" if amount <= MAX_COUNT else f"Must be at most {MAX_COUNT}"


def _check_name(row: Limit, others: Iterable[Limit | PlanLimit]) -> None:
    if any(other.name == row.name for other in others):
        raise InvalidFields([Issue("name", "Another limit has this name")])
