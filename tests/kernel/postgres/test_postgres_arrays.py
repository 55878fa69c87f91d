"""Arrays written as text, as PostgreSQL reads them."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

import pytest
from django.db import connection

from apps.kernel.ids import new_id
from apps.kernel.postgres.postgres_arrays import write_array

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
