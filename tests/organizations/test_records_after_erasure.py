"""A record that is settled after its organization was deleted: the bill stays, the words are nowhere."""

from __future__ import annotations

from threading import Event, Thread
from typing import Any

from django.db import connection, connections, transaction

from apps.kernel.ids import new_id
from apps.logs import writer
from apps.logs.models import RequestLog
from apps.organizations.actions import delete_organization
from apps.organizations.deletion import erase_deleted
from apps.organizations.models import Organization
from tests.logs.entries import entry, write
from tests.support.cast import World, make_key, make_organization, make_user

WORDS = "words that must not stay"
SAID: dict[str, Any] = {
    "content": WORDS,
    "reasoning_content": WORDS,
    "messages": [{"role": "user", "content": WORDS}],
    "custom_headers": {"team": WORDS},
    "source": WORDS,
    "error_details": {"message": WORDS},
    "routing_metadata": {"note": WORDS},
}


def stored() -> str:
    """Return the whole log as text."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(string_agg(row_to_json(r)::text, ' '), '') FROM request_log r")
        [(text,)] = cursor.fetchall()
    return str(text)


def test_it_is_kept_as_a_bill_without_a_word(world: World) -> None:
    key, others = make_key(world.olivia, world.project).key, make_key(world.sam, world.elsewhere_project).key
    delete_organization(organization=world.acme)
    late, living = entry(key, **SAID), entry(others, content="theirs")
    assert writer.write([late, living]) == {late.id, living.id}
    row = RequestLog.objects.get(id=late.id)
    assert (row.cost, row.prompt_tokens, row.used_model) == (late.cost, late.prompt_tokens, late.used_model)
    assert row.error_details == {"code": "content_not_stored", "reason": "organization_deleted"}
    assert WORDS not in stored()
    assert RequestLog.objects.get(id=living.id).content == "theirs"


def test_so_it_is_after_the_erasure(world: World) -> None:
    key = make_key(world.olivia, world.project).key
    write(entry(key, **SAID))
    delete_organization(organization=world.acme)
    assert erase_deleted() == [world.acme.id]
    assert stored() == ""
    late = entry(key, **SAID)
    assert writer.write([late]) == {late.id}
    assert writer.write([late]) == set()
    assert WORDS not in stored()


def test_an_organization_nobody_knows_of_loses_nothing(world: World) -> None:
    stranger = entry(make_key(world.olivia, world.project).key, content="kept")
    stranger.organization_id = new_id()
    writer.write([stranger])
    assert RequestLog.objects.get(id=stranger.id).content == "kept"


def test_erasure_waits_for_a_record_that_was_on_its_way(transactional_db: None) -> None:
    organization = make_organization(owner=make_user("Olivia"))
    key = make_key(organization.memberships.get().user, organization.projects.get()).key
    writer.write([])
    erased, begun = Event(), Event()

    def erase() -> None:
        begun.set()
        erase_deleted()
        erased.set()
        connections.close_all()

    with transaction.atomic():
        assert writer.write([entry(key, **SAID)])
        thread = Thread(target=erase)
        # In another session the organization is deleted meanwhile.
        deletion = Thread(target=_delete, args=(organization,))
        deletion.start()
        deletion.join(10)
        assert not deletion.is_alive()
        thread.start()
        begun.wait(10)
        assert not erased.wait(0.3)
    thread.join(10)
    assert erased.is_set()
    assert stored() == ""


def _delete(organization: Organization) -> None:
    delete_organization(organization=organization)
    connections.close_all()
