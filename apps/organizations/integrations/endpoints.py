"""The API of integrations: create, list, change and delete, alike for every kind.

A `Kind` has all that differs; the console's pages of a kind use the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.kernel.rest.endpoint import described, message_field
from apps.kernel.rest.serializers import CamelSerializer, QueryBooleanField, TextField
from apps.organizations.access import access_organization
from apps.organizations.credentials.sessions import MemberEndpoint
from apps.organizations.integrations.table import IntegrationTable, Row
from apps.organizations.models import Role

Shape = type[serializers.Serializer[Any]]
# Stores a checked row.
Create = Callable[[], Row]


class OwnerQuery(CamelSerializer):
    """The query of a list."""

    organization_id = TextField(max_length=100)


class LiveQuery(CamelSerializer):
    """The query of a POST that tests the credential; `validate=false` stores it without a test."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """Return the field `validate`, whose name would clash with a serializer's method."""
        return {"validate": QueryBooleanField(default=True, source="live")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[Row]):
    """A kind of integrations, as the API and the console manage it."""

    table: IntegrationTable[Row]
    # A row in an answer, and its name there; the name of a list of them.
    name: str
    plural: str
    shape: Shape
    # The bodies of POST and PATCH, and the query of POST.
    new: Shape
    changes: Shape
    query: Shape | None = None
    # Checks a new row by the fields of its body and query. May call the outside service, so runs outside transactions.
    check: Callable[..., Create[Row]]
    # Changes a row by the fields of a body of PATCH.
    change: Callable[[Row, Mapping[str, Any]], Row]
    # Returns the message of an answer to PATCH; None: such answers have no message.
    changed: Callable[[Row], str] | None = None


class KindEndpoint(MemberEndpoint):
    """An endpoint of a kind of integrations."""

    kind: ClassVar[Kind[Any]]


class ListEndpoint(KindEndpoint):
    """`POST` creates a row, `GET` lists the rows of an organization."""

    def prepare(self) -> None:
        """Check the new row, before the POST's transaction: nothing that is open waits for the outside service."""
        fields = self.read(self.kind.new)
        organization, _ = access_organization(self.user, fields["organization_id"], Role.ADMIN)
        query = self.read_query(self.kind.query) if self.kind.query else {}
        self._create: Create[Any] = self.kind.check(organization, fields, **query)

    def post(self, request: Request) -> Response:
        """Store the checked row."""
        return Response({self.kind.name: self.kind.shape(self._create()).data})

    def get(self, request: Request) -> Response:
        """List the rows of an organization."""
        rows = self.kind.table.access_all(self.user, **self.read_query(OwnerQuery))
        return Response({self.kind.plural: self.kind.shape(rows, many=True).data})


class OneEndpoint(KindEndpoint):
    """`PATCH` changes a row, `DELETE` deletes it; its id is the path's only parameter."""

    def patch(self, request: Request, **names: str) -> Response:
        """Change the row."""
        row = self.kind.change(self._access(names), self.read(self.kind.changes))
        message = {"message": self.kind.changed(row)} if self.kind.changed else {}
        return Response({**message, self.kind.name: self.kind.shape(row).data})

    def delete(self, request: Request, **names: str) -> Response:
        """Delete the row and erase its credentials."""
        self.kind.table.delete(self._access(names))
        return Response({"message": f"{self.kind.table.capitalized} deleted"})

    def _access(self, names: Mapping[str, str]) -> Any:
        [identifier] = names.values()
        return self.kind.table.access(self.user, identifier)


_Endpoint = TypeVar("_Endpoint", bound=type[KindEndpoint])


def documented(**texts: str) -> Callable[[_Endpoint], _Endpoint]:
    """Describe an endpoint in the OpenAPI document: `texts` say what each of its methods does."""

    def document(view: _Endpoint) -> _Endpoint:
        kind = view.kind
        message = {"message": message_field()}
        given: dict[str, dict[str, Any]] = {
            "post": {"answer": {kind.name: kind.shape()}, "body": kind.new, "query": kind.query},
            "get": {"answer": {kind.plural: kind.shape(many=True)}, "query": OwnerQuery},
            "patch": {"answer": {**(message if kind.changed else {}), kind.name: kind.shape()}, "body": kind.changes},
            "delete": {"answer": message},
        }
        for verb, text in texts.items():
            describe = described(**given[verb], refuses=(403, 404))
            setattr(view, verb, describe(_own_method(view, verb, text)))
        return view

    return document


def _own_method(view: type[KindEndpoint], verb: str, text: str) -> Callable[..., Response]:
    """Return a copy of an inherited method, so that its description is not that of other kinds, too."""
    inherited = getattr(view, verb)

    def method(self: KindEndpoint, request: Request, **names: str) -> Response:
        answer: Response = inherited(self, request, **names)
        return answer

    method.__name__, method.__qualname__, method.__doc__ = verb, f"{view.__name__}.{verb}", text
    return method
