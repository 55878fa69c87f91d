"""Actions on API keys and their rules, each in one transaction.

A token is returned once and never stored or logged.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from apps.kernel.errors import Forbidden, Gone, InvalidRequest
from apps.kernel.ids import find_id
from apps.kernel.postgres.rows import find_row, lock_row
from apps.kernel.rest.envelopes import InvalidFields
from apps.keys.access import NO_KEY, NO_RULE, check_team_change
from apps.keys.iam import issues_of
from apps.keys.models import ApiKey, IamRule
from apps.keys.secrets import digest_of, new_token, prefix
from apps.organizations.access import access_organization, access_project, require_verified
from apps.organizations.credentials.management_keys import is_program
from apps.organizations.journal import audit
from apps.organizations.models import Project, User
from apps.organizations.plans import limits_of
from apps.organizations.teams.access import account_of_key, team_of_key

# Shown as the prefix of a playground key, which has no token.
PLAYGROUND = "playground"
# The same for the key of a program that signed in with OAuth.
PROGRAM = "oauth"
WITHOUT_TOKEN = (PLAYGROUND, PROGRAM)
# Every request evaluates all active rules of its key.
MAX_RULES = 100


class CreatedKey(NamedTuple):
    """A new key and its token, which is shown only once."""

    key: ApiKey
    token: str


@transaction.atomic
def create_api_key(
    *,
    user: User,
    project_id: UUID | str,
    description: str,
    team_id: str | None = None,
    service_account_id: str | None = None,
    **limits: Any,
) -> CreatedKey:
    """Create a key of a project that the user has access to. It belongs to the user, or to a service account.

    It counts for its project's team, and for another one if set. `limits` are the columns `usage_limit` and
    `period_limit` (USD, None unlimited), `period`, `expires_at`, `requests_per_minute` and `allowed_origins`.
    Raises NotFound, Forbidden, Gone for an archived project, InvalidFields for an unknown team or service account,
    InvalidRequest at the plan's limit of keys.
    """
    project = lock_open_project(user, project_id)
    role = access_organization(user, project.organization_id).role
    if team_id is not None:
        limits["team_id"] = team_of_key(user, project.organization, role, team_id).pk
    if service_account_id is None:
        return _create_in(project, user, description, {}, **limits)
    account = account_of_key(user, project.organization, role, service_account_id)
    return _create_in(project, account.account, description, {"serviceAccountId": account.id}, **limits)


def _create_in(project: Project, owner: User, description: str, noted: Mapping[str, Any], **columns: Any) -> CreatedKey:
    """Create a key of a locked project, whose lock lets each request count the others' keys. Raises InvalidRequest.

    `noted` are further details for the audit log.
    """
    limit = limits_of(project.organization.plan).api_keys_per_project
    if limit is not None and count_of_keys(project) >= limit:
        raise InvalidRequest(f"Maximum {limit} API keys per project", code="api_key_limit_reached")
    token = new_token()
    key = ApiKey.objects.create(
        project=project,
        created_by=owner,
        description=description,
        digest=digest_of(token),
        prefix=prefix(),
        last_four=token[-4:],
        **columns,
    )
    details = {"description": description, "maskedToken": key.masked_token, "projectId": project.id, **noted, **columns}
    _record("api_key.create", key, details)
    return CreatedKey(key, token)


@transaction.atomic
def open_playground_key(*, user: User, project_id: UUID | str) -> ApiKey:
    """Return the key of a user's playground in a project, created on first use.

    It is listed, limited and switched off like any other key but does not count towards the plan's limit. Its token is
    discarded: only the gateway itself can use it, by its id.
    Raises NotFound, Forbidden (also if it was switched off), Gone for an archived project.
    """
    # If two requests come at once, the second finds the first one's key.
    project = lock_open_project(user, project_id)
    mine = ApiKey.objects.filter(project=project, created_by=user, prefix=PLAYGROUND)
    key = mine.exclude(status=ApiKey.Status.DELETED).first()
    if key is None:
        key = _create_without_token(project, user, description="Playground", prefix=PLAYGROUND)
    if key.status != ApiKey.Status.ACTIVE:
        raise Forbidden("Your playground's API key in this project is switched off; turn it on under API keys")
    return key


@transaction.atomic
def create_program_key(*, user: User, project_id: UUID | str, description: str, **limits: Any) -> ApiKey:
    """Create the key of a program that a member signed in for a project.

    It has no token, is listed, limited and switched off like any other key, and does not count towards the plan's
    limit. `limits` and errors are those of `create_api_key`, without the plan's limit.
    """
    project = lock_open_project(user, project_id)
    return _create_without_token(project, user, description=description, prefix=PROGRAM, **limits)


@transaction.atomic
def change_api_key(*, key: ApiKey, changes: Mapping[str, Any], user: User | None = None) -> ApiKey:
    """Set status, description, limits or team of a key; `user` must be the one who puts it into a team or none.

    Raises NotFound when it was deleted meanwhile; InvalidFields, Forbidden for a team.
    """
    row = lock_row(key, NO_KEY)
    if user is not None and "team_id" in changes:
        check_team_change(user, row, changes["team_id"])
        changes = {**changes, "team_id": find_id(changes["team_id"] or "")}
    _record("api_key.update", row, audit.changes_of(row, changes))
    for name, value in changes.items():
        setattr(row, name, value)
    # No other column: usage changes concurrently.
    row.save(update_fields=[*changes, "updated_at"])
    return row


@transaction.atomic
def replace_api_key(*, key: ApiKey, user: User, overlap: timedelta) -> CreatedKey:
    """Create a replacement for a key, with its project, limits and rules; the old key ends after `overlap`.

    The new key gets the rest of a usage limit. It belongs to the user, whose leaving ends it; but one that belongs to a
    management key or a service account stays theirs. Raises as `create_api_key` does, NotFound for a key that was
    deleted meanwhile, InvalidRequest for one that has expired or has no token.
    """
    row = lock_row(key, NO_KEY)
    _require_token(row)
    now = timezone.now()
    if row.expires_at is not None and row.expires_at <= now:
        raise InvalidRequest("This key has expired; create a new one", code="api_key_expired")
    left = None if row.usage_limit is None else max(row.usage_limit - row.usage, Decimal(0))
    names = ("team_id", "period_limit", "period", "expires_at", "requests_per_minute", "allowed_origins")
    kept = {name: getattr(row, name) for name in names}
    if overlap:
        ends = now + overlap
        change_api_key(key=row, changes={"expires_at": min(row.expires_at or ends, ends)})
    else:
        end_api_key(row)
    project = lock_open_project(user, row.project_id)
    owner = row.created_by if is_program(row.created_by) else user
    created = _create_in(project, owner, row.description, {}, usage_limit=left, **kept)
    for rule in row.iam_rules.order_by("created_at", "id"):
        create_rule(key=created.key, rule_type=rule.rule_type, rule_value=rule.rule_value, status=rule.status)
    _record("api_key.replace", row, {"newApiKeyId": created.key.id, "maskedToken": created.key.masked_token})
    return created


@transaction.atomic
def rotate_api_key(*, key: ApiKey) -> CreatedKey:
    """Give a key a new secret; the old one stops working. Limits, usage, rules and log stay.

    Raises NotFound when it was deleted meanwhile, InvalidRequest for one without a token.
    """
    row = lock_row(key, NO_KEY)
    _require_token(row)
    token, before = new_token(), row.masked_token
    row.digest, row.prefix, row.last_four = digest_of(token), prefix(), token[-4:]
    _record("api_key.rotate", row, {"description": row.description, "from": before, "to": row.masked_token})
    row.save(update_fields=["digest", "prefix", "last_four", "updated_at"])
    return CreatedKey(row, token)


@transaction.atomic
def delete_api_key(*, key: ApiKey) -> None:
    """Delete a key permanently. Raises NotFound if it already is deleted."""
    end_api_key(lock_row(key, NO_KEY))


def end_api_key(key: ApiKey) -> None:
    """Delete a key that the caller's transaction has locked."""
    _record("api_key.delete", key, {"description": key.description, "maskedToken": key.masked_token})
    key.status = ApiKey.Status.DELETED
    key.save(update_fields=["status", "updated_at"])


@transaction.atomic
def create_rule(*, key: ApiKey, rule_type: str, rule_value: Mapping[str, Any], status: str) -> IamRule:
    """Add a rule to a key. Raises InvalidRequest for a value that does not fit the type, or at the limit of rules."""
    _require_fit(rule_type, rule_value)
    row = lock_row(key, NO_KEY)
    if row.iam_rules.count() >= MAX_RULES:
        raise InvalidRequest(f"Maximum {MAX_RULES} IAM rules per API key", code="iam_rule_limit_reached")
    rule = IamRule.objects.create(api_key=row, rule_type=rule_type, rule_value=rule_value, status=status)
    _record(
        "iam_rule.create", rule, {"apiKeyId": row.id, "ruleType": rule_type, "ruleValue": rule_value, "status": status}
    )
    return rule


@transaction.atomic
def change_rule(*, rule: IamRule, changes: Mapping[str, Any]) -> IamRule:
    """Set columns of a rule. Raises InvalidRequest if type and value do not fit, NotFound if it is gone."""
    row = find_row(IamRule.objects.select_for_update(), rule.pk, NO_RULE)
    details = {"apiKeyId": row.api_key_id, **audit.changes_of(row, changes)}
    for name, value in changes.items():
        setattr(row, name, value)
    _require_fit(row.rule_type, row.rule_value)
    _record("iam_rule.update", row, details)
    row.save(update_fields=[*changes, "updated_at"])
    return row


@transaction.atomic
def delete_rule(*, rule: IamRule) -> None:
    """Remove an access rule from a key."""
    _record("iam_rule.delete", rule, {"apiKeyId": rule.api_key_id, "ruleType": rule.rule_type})
    rule.delete()


def count_of_keys(project: Project) -> int:
    """Return how many keys count towards the plan's limit: not deleted ones and ones without a token."""
    keys = ApiKey.objects.filter(project=project).exclude(status=ApiKey.Status.DELETED)
    return keys.exclude(prefix__in=WITHOUT_TOKEN).count()


def lock_open_project(user: User, project_id: UUID | str) -> Project:
    """Return a project in which the user may create keys, locked until the transaction ends.

    Raises NotFound, Forbidden, Gone for an archived project.
    """
    project, _ = access_project(user, project_id)
    require_verified(user)
    Project.objects.select_for_update(no_key=True).get(pk=project.pk)
    if project.status != Project.Status.ACTIVE:
        raise Gone(f"This project has been {project.status}")
    return project


def _create_without_token(project: Project, user: User, *, description: str, prefix: str, **limits: Any) -> ApiKey:
    """Create a key whose token is discarded."""
    key = ApiKey.objects.create(
        project=project,
        created_by=user,
        description=description,
        digest=digest_of(new_token()),
        prefix=prefix,
        **limits,
    )
    _record("api_key.create", key, {"description": description, "projectId": project.id, **limits})
    return key


def _record(action: str, row: ApiKey | IamRule, details: Mapping[str, Any]) -> None:
    project = (row if isinstance(row, ApiKey) else row.api_key).project
    audit.record(action, organization_id=project.organization_id, resource=row, details=details)


def _require_token(key: ApiKey) -> None:
    """Raise InvalidRequest for a playground's or a program's key, which must not get a token."""
    if key.prefix in WITHOUT_TOKEN:
        whose = "playground's" if key.prefix == PLAYGROUND else "signed-in program's"
        raise InvalidRequest(f"A {whose} API key has no token to replace", code="api_key_without_token")


def _require_fit(rule_type: str, rule_value: Mapping[str, Any]) -> None:
    if issues := issues_of(rule_type, rule_value):
        raise InvalidFields(issues)
