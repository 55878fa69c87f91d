"""The audit log: every change to an organization, with the user, the resource and the origin.

Each action calls `record` in its own transaction, so a rolled-back change leaves no entry. The acting user is set once,
when the request is authenticated. Secrets never enter `details`; only their masks do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import Model

from apps.kernel.money import plain
from apps.kernel.rest import origin
from apps.organizations.models import AuditEntry, Membership, Organization, User

Actor = tuple[AuditEntry.ActorType, User | None]
SYSTEM: Actor = (AuditEntry.ActorType.SYSTEM, None)
_actor: ContextVar[Actor] = ContextVar("actor", default=SYSTEM)
# Characters kept of one changed value.
MAX_VALUE = 300


@contextmanager
def acting(user: User | None = None, kind: AuditEntry.ActorType = AuditEntry.ActorType.SESSION) -> Iterator[None]:
    """Record everything inside as done by this user; without one, by the machine itself."""
    token = _actor.set((kind, user) if user else SYSTEM)
    try:
        yield
    finally:
        _actor.reset(token)


def act_as(user: User, kind: AuditEntry.ActorType = AuditEntry.ActorType.SESSION) -> None:
    """Set the user of the request, inside an open `acting`."""
    _actor.set((kind, user))


def current_actor() -> Actor:
    """Return the kind of caller and the user that changes are recorded for."""
    return _actor.get()


def acting_user() -> User | None:
    """Return the user that changes are recorded for; None for the machine itself."""
    return _actor.get()[1]


def record(action: str, *, organization_id: UUID, resource: Model, details: Mapping[str, Any] | None = None) -> None:
    """Record that the acting user did `action` (`thing.verb`) to a resource of the organization.

    Call it in the transaction of the change. `details` may hold JSON values, datetimes and Decimals.
    """
    kind, user = _actor.get()
    where = origin.current()
    AuditEntry.objects.create(
        organization_id=organization_id,
        actor_type=kind,
        actor_id=user.id if user else None,
        actor_email=user.email if user else None,
        action=action,
        resource_type=action.partition(".")[0],
        resource_id=str(resource.pk),
        details={name: audit_value(value) for name, value in (details or {}).items()},
        ip_address=where.address or None,
        user_agent=where.user_agent or None,
        request_id=where.request_id or None,
    )


def record_of_account(action: str, *, user: User, resource: Model, details: Mapping[str, Any] | None = None) -> None:
    """Record a change of a user's sign-in methods in each of their organizations, in the same transaction.

    Organizations need to know how their members can sign in.
    """
    organizations = Membership.objects.filter(user=user).exclude(organization__status=Organization.Status.DELETED)
    for organization_id in organizations.order_by("organization_id").values_list("organization_id", flat=True):
        record(action, organization_id=organization_id, resource=resource, details=details)


def changes_of(row: Model, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes of these columns as `{column: {from, to}}`; call it before they are set."""
    before = {name: getattr(row, name) for name in changes}
    return {
        "changes": {
            name: {"from": audit_value(before[name]), "to": audit_value(value)}
            for name, value in changes.items()
            if before[name] != value
        }
    }


def audit_value(value: Any) -> Any:
    """Return a value as JSON, shortened; a row as its id."""
    match value:
        case Model():
            return str(value.pk)
        case Decimal():
            return plain(value)
        case datetime() | time():
            return value.isoformat()
        case UUID():
            return str(value)
        case str():
            return str(value)[:MAX_VALUE]
        case list() | tuple() if len(value) > MAX_VALUE:
            return [audit_value(inner) for inner in value[:MAX_VALUE]]
        case dict():
            return {name: audit_value(inner) for name, inner in value.items()}
    return value
