"""Deletion in pieces: exact counts, and no statement larger than a piece."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.kernel.postgres.deletion import delete_in_pieces, delete_piece
from apps.organizations.models import User


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
