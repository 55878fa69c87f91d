"""The actions and access checks that all kinds of integrations share; each kind is an `IntegrationTable`.

A kind's own module adds the columns of a new row, and which changes are possible.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from django.db import IntegrityError, transaction
from django.db.models import Model, QuerySet

from apps.kernel.errors import InvalidRequest
from apps.kernel.postgres.rows import find_row, lock_row
from apps.kernel.rest.envelopes import InvalidFields, Issue, camel
from apps.kernel.secrets.encryption import Rotated, reencrypt_rows
from apps.organizations.access import NO_ORGANIZATION, access_organization
from apps.organizations.journal import audit
from apps.organizations.models import DELETED, Organization, Role, User

Row = TypeVar("Row", bound=Model)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegrationTable(Generic[Row]):
    """A kind of integrations: its model and names, and the actions on its rows, each in one transaction.

    The model has the columns `organization`, `status` (with `deleted`) and `updated_at`.
    """

    model: type[Row]
    # In the audit log (`log_sink.create`) and in error codes; in sentences.
    thing: str
    noun: str
    order: tuple[str, ...]
    # The column with the encrypted credentials, and the columns with their displayable parts.
    encrypted: str = "encrypted_credentials"
    masks: tuple[str, ...]
    # The field of the API that is unique within an organization.
    unique: str = "name"
    # Columns and properties that the audit log notes of a new row, and of one that is deleted.
    noted_new: tuple[str, ...]
    noted_deleted: tuple[str, ...] = ("name",)

    @property
    def capitalized(self) -> str:
        """The noun at the beginning of a sentence."""
        return f"{self.noun[0].upper()}{self.noun[1:]}"

    @property
    def missing(self) -> str:
        """The message of NotFound."""
        return f"{self.capitalized} not found"

    @property
    def living(self) -> QuerySet[Row]:
        """The rows of all organizations, without deleted ones."""
        return self.model._default_manager.exclude(status=DELETED)

    def access_all(self, user: User, organization_id: str) -> QuerySet[Row]:
        """Return the rows of an organization that the user administers, in their order. Raises NotFound, Forbidden."""
        organization, _ = access_organization(user, organization_id, Role.ADMIN)
        return self.living.filter(organization=organization).order_by(*self.order)

    def access(self, user: User, identifier: str) -> Row:
        """Return a row of an organization that the user administers, with the organization. Raises NotFound,
        Forbidden."""
        rows = self.living.exclude(organization__status=DELETED).select_related("organization")
        row = find_row(rows, identifier, self.missing)
        access_organization(user, cast(Any, row).organization_id, Role.ADMIN)
        return row

    def create(self, organization: Organization, columns: Mapping[str, Any], *, max_rows: int, **details: Any) -> Row:
        """Store a row; `max_rows` is the limit of an organization, `details` are more for the audit log.

        Raises InvalidRequest at the limit of rows, InvalidFields for a name in use; NotFound if the organization was
        deleted meanwhile.
        """
        try:
            with transaction.atomic():
                # The lock serializes concurrent registration and deletion of the organization.
                lock_row(organization, NO_ORGANIZATION)
                if self.living.filter(organization=organization).count() >= max_rows:
                    words = f"Maximum {max_rows} {self.noun}s per organization"
                    raise InvalidRequest(words, code=f"{self.thing}_limit")
                row = self.model._default_manager.create(organization=organization, **columns)
                noted = {camel(name): getattr(row, name) for name in self.noted_new}
                self._record("create", row, {**noted, **details})
                return row
        except IntegrityError as error:
            raise self.name_taken() from error

    def name_taken(self) -> InvalidFields:
        """Return the error for a name in use."""
        return InvalidFields([Issue(self.unique, f"Another {self.noun} has this name")])

    def lock(self, row: Row) -> Row:
        """Return the current row, locked until the transaction ends. Raises NotFound if it was deleted meanwhile."""
        return lock_row(row, self.missing)

    def update(
        self, row: Row, columns: Mapping[str, Any], details: Mapping[str, Any], changed: Collection[str] = ()
    ) -> None:
        """Set columns of a locked row and save it, with columns that are `changed` already."""
        self._record("update", row, details)
        for name, value in columns.items():
            setattr(row, name, value)
        row.save(update_fields=[*columns, *changed, "updated_at"])

    def delete(self, row: Row) -> None:
        """Delete a row and erase its credentials. Raises NotFound if it already is deleted."""
        with transaction.atomic():
            current: Any = self.lock(row)
            self._record("delete", current, {name: getattr(current, name) for name in self.noted_deleted})
            setattr(current, self.encrypted, b"")
            for name in self.masks:
                setattr(current, name, "")
            current.status = DELETED
            current.save(update_fields=["status", self.encrypted, *self.masks, "updated_at"])

    def rotate(self, reencrypt: Callable[[bytes], bytes]) -> Rotated:
        """Encrypt the credentials of every row with the newest encryption key, so that older ones can be removed."""
        return reencrypt_rows(self.living, self.encrypted, reencrypt)

    def _record(self, verb: str, row: Row, details: Mapping[str, Any]) -> None:
        organization_id = cast(Any, row).organization_id
        audit.record(f"{self.thing}.{verb}", organization_id=organization_id, resource=row, details=details)
