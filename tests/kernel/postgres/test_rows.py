"""Rows: found by id, NotFound with the caller's message for everything else; deleted in pieces, with exact counts; and
arrays written as text, as PostgreSQL reads them.
"""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.kernel.errors import NotFound
from apps.kernel.ids import new_id
from apps.kernel.postgres.rows import delete_in_pieces, delete_piece, find_row, write_array
from apps.organizations.models import Organization, User


@pytest.mark.django_db
def test_a_row_is_found_by_its_id_or_the_text_of_it() -> None:
    made = Organization.objects.create(name="Acme")
    assert find_row(Organization.objects.all(), made.pk, "No such organization") == made
    assert find_row(Organization.objects.filter(name="Acme"), str(made.pk), "No such organization") == made


@pytest.mark.parametrize("identifier", ["", "x", "0", "../..", f"{UUID(int=0)}g", new_id()])
@pytest.mark.django_db
def test_an_unknown_id_is_not_found(identifier: UUID | str) -> None:
    Organization.objects.create(name="Acme")
    with pytest.raises(NotFound, match=r"^No such organization$"):
        find_row(Organization.objects.all(), identifier, "No such organization")


@pytest.mark.django_db
def test_a_row_outside_of_the_query_is_not_found() -> None:
    made = Organization.objects.create(name="Acme")
    with pytest.raises(NotFound, match=r"^No such organization$"):
        find_row(Organization.objects.exclude(name="Acme"), made.pk, "No such organization")


def make_users(count: int) -> None:
    User.objects.bulk_create(User(email=f"{number}@example.com") for number in range(count))


@pytest.mark.django_db
def test_rows_are_deleted_in_pieces_and_counted() -> None:
    make_users(7)
    rows = User.objects.exclude(email="3@example.com")
    with CaptureQueriesContext(connection) as queries:
        assert delete_in_pieces(rows, 4) == 6
    found = [query["sql"] for query in queries.captured_queries if "LIMIT 4" in query["sql"]]
    assert len(found) == 3
    assert list(User.objects.values_list("email", flat=True)) == ["3@example.com"]
    assert delete_in_pieces(rows, 4) == 0


@pytest.mark.django_db
def test_one_piece_is_deleted_in_order() -> None:
    make_users(3)
    first = set(User.objects.order_by("pk").values_list("pk", flat=True)[:2])
    assert delete_piece(User.objects.all(), 2) == 2
    assert not User.objects.filter(pk__in=first).exists()
    assert User.objects.count() == 1


ONE, OTHER = new_id(), new_id()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("uuid", [ONE, None, OTHER]),
        ("text", ["usage", "storage"]),
        ("numeric", [Decimal("0.000000000001"), Decimal("-999999999999.999999999999"), Decimal("1E-12"), Decimal(0)]),
        ("uuid", []),
    ],
)
def test_the_database_reads_what_was_written(kind: str, values: list[UUID | Decimal | str | None]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT unnest(%s::{kind}[])", [write_array(values)])
        assert [value for (value,) in cursor.fetchall()] == values
