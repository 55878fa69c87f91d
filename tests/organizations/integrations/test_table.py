"""Rules that all kinds of integrations share: limit, names, access, deletion with erased credentials."""

from __future__ import annotations

from typing import Any

import pytest

from apps.kernel.errors import Forbidden, InvalidRequest, NotFound
from apps.kernel.ids import new_id
from apps.kernel.rest.envelopes import InvalidFields
from apps.keys.access import PROVIDER_KEYS
from apps.log_sinks.access import SINKS
from apps.mcp_servers.access import SERVERS
from apps.organizations.integrations.table import IntegrationTable
from apps.organizations.models import AuditEntry
from tests.support.cast import World

SECRET = b"encrypted"
KINDS: list[tuple[IntegrationTable[Any], dict[str, Any]]] = [
    (SINKS, {"name": "archive", "kind": "webhook", "url": "https://logs.example", "masked_credentials": "...abcd"}),
    (SERVERS, {"name": "archive", "url": "https://tools.example", "last_four": "abcd"}),
    (PROVIDER_KEYS, {"provider": "custom", "provider_name": "archive", "base_url": "https://models.example"}),
]
every_kind = pytest.mark.parametrize(("table", "columns"), KINDS, ids=[table.thing for table, _ in KINDS])


def create(table: IntegrationTable[Any], world: World, columns: dict[str, Any], **more: Any) -> Any:
    return table.create(world.acme, {**columns, table.encrypted: SECRET, **more}, max_rows=2)


def actions() -> list[tuple[str, str]]:
    """The audit log, without how the cast's organizations were made."""
    entries = AuditEntry.objects.exclude(resource_type="organization").order_by("id")
    return list(entries.values_list("action", "resource_id"))


@every_kind
def test_a_name_in_use_is_refused_and_free_again_after_a_deletion(
    world: World, table: IntegrationTable[Any], columns: dict[str, Any]
) -> None:
    row = create(table, world, columns)
    with pytest.raises(InvalidFields) as refusal:
        create(table, world, columns)
    [issue] = refusal.value.issues
    assert (issue.path, issue.message) == (table.unique, f"Another {table.noun} has this name")
    assert actions() == [(f"{table.thing}.create", str(row.pk))]
    table.delete(row)
    again = create(table, world, columns)
    assert list(table.living) == [again]


@every_kind
def test_an_organization_has_at_most_so_many(
    world: World, table: IntegrationTable[Any], columns: dict[str, Any]
) -> None:
    name = "provider_name" if table is PROVIDER_KEYS else "name"
    for number in range(2):
        create(table, world, columns, **{name: f"number-{number}"})
    with pytest.raises(InvalidRequest, match=rf"^Maximum 2 {table.noun}s per organization$") as refusal:
        create(table, world, columns)
    assert refusal.value.code == f"{table.thing}_limit"
    assert table.living.count() == 2
    assert len(actions()) == 2


@every_kind
def test_only_admins_of_its_organization_reach_a_row(
    world: World, table: IntegrationTable[Any], columns: dict[str, Any]
) -> None:
    row = create(table, world, columns)
    assert table.access(world.adam, str(row.pk)) == row
    assert list(table.access_all(world.adam, str(world.acme.pk))) == [row]
    for stranger in (world.dana, world.sam):
        with pytest.raises(Forbidden):
            table.access(stranger, str(row.pk))
        with pytest.raises(Forbidden):
            table.access_all(stranger, str(world.acme.pk))
    for unknown in (str(new_id()), "no-id"):
        with pytest.raises(NotFound, match=rf"^{table.missing}$"):
            table.access(world.adam, unknown)


@every_kind
def test_a_deleted_row_has_no_credentials_and_is_not_found(
    world: World, table: IntegrationTable[Any], columns: dict[str, Any]
) -> None:
    row = create(table, world, columns)
    table.delete(row)
    row.refresh_from_db()
    assert (row.status, bytes(getattr(row, table.encrypted))) == ("deleted", b"")
    assert [getattr(row, name) for name in table.masks] == [""] * len(table.masks)
    for gone in (table.lock, table.delete):
        with pytest.raises(NotFound, match=rf"^{table.missing}$"):
            gone(row)
    with pytest.raises(NotFound):
        table.access(world.adam, str(row.pk))
    assert list(table.access_all(world.adam, str(world.acme.pk))) == []
    assert actions() == [(f"{table.thing}.{verb}", str(row.pk)) for verb in ("create", "delete")]
