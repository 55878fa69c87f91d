"""Row lookup: a row of the query by its id, NotFound with the caller's message for everything else."""

from __future__ import annotations

from uuid import UUID

import pytest

from apps.kernel.errors import NotFound
from apps.kernel.ids import new_id
from apps.kernel.postgres.row_lookup import find_row
from apps.organizations.models import Organization

pytestmark = pytest.mark.django_db


def test_a_row_is_found_by_its_id_or_the_text_of_it() -> None:
    made = Organization.objects.create(name="Acme")
    assert find_row(Organization.objects.all(), made.pk, "No such organization") == made
    assert find_row(Organization.objects.filter(name="Acme"), str(made.pk), "No such organization") == made


@pytest.mark.parametrize("identifier", ["", "x", "0", "../..", f"{UUID(int=0)}g", new_id()])
def test_an_unknown_id_is_not_found(identifier: UUID | str) -> None:
    Organization.objects.create(name="Acme")
    with pytest.raises(NotFound, match=r"^No such organization$"):
        find_row(Organization.objects.all(), identifier, "No such organization")


def test_a_row_outside_of_the_query_is_not_found() -> None:
    made = Organization.objects.create(name="Acme")
    with pytest.raises(NotFound, match=r"^No such organization$"):
        find_row(Organization.objects.exclude(name="Acme"), made.pk, "No such organization")
