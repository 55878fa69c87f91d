"""The audit log: who did what to which thing of an organization, from where. Written with the change, never after it.

Every verb that changes something of an organization calls `record` inside its transaction: what is undone was not done.
Who acts is set once, where the caller is recognized. Must never take down a secret: `details` are the words of the
change, and of secrets their mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import Model

from apps.kernel.money import plain
from apps.kernel.rest import origin
from apps.organizations.models import AuditEntry, User

Actor = tuple[AuditEntry.ActorType, User | None]
SYSTEM: Actor = (AuditEntry.ActorType.SYSTEM, None)
_actor: ContextVar[Actor] = ContextVar("actor", default=SYSTEM)
# Characters of one changed value that are kept.
MAX_VALUE = 300


@contextmanager
def acting(user: User | None = None, kind: AuditEntry.ActorType = AuditEntry.ActorType.SESSION) -> Iterator[None]:
    """Let everything inside be done by this user; by the machine itself without one."""
    token = _actor.set((kind, user) if user else SYSTEM)
    try:
        yield
    finally:
        _actor.reset(token)


def act_as(user: User) -> None:
    """Say who a request has turned out to come from; whoever serves it has opened `acting`."""
    _actor.set((AuditEntry.ActorType.SESSION, user))


def record(action: str, *, organization_id: UUID, resource: Model, details: Mapping[str, Any] | None = None) -> None:
    """Take down that the one who acts did `action` (`thing.verb`) to a thing of the organization.

    To be called in the transaction that makes the change. `details` are JSON, moments and amounts.
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


def changes_of(row: Model, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return what setting these columns changes, as `{column: {from, to}}`; to be asked before they are set."""
    before = {name: getattr(row, name) for name in changes}
    return {
        "changes": {
            name: {"from": audit_value(before[name]), "to": audit_value(value)}
            for name, value in changes.items()
            if before[name] != value
        }
    }


def audit_value(value: Any) -> Any:
    """Return a value as JSON, as short as it is needed; a row as its id."""
    match value:
        case Model():
            return str(value.pk)
        case Decimal():
            return plain(value)
        case datetime():
            return value.isoformat()
        case UUID():
            return str(value)
        case str():
            return str(value)[:MAX_VALUE]
        case list() | tuple() if len(value) > MAX_VALUE:
            return [audit_value(inner) for inner in value[:MAX_VALUE]]
    return value
