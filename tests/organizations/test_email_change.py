"""Another e-mail address: proof first, the old one told, and nothing changes before the new one is confirmed."""

from __future__ import annotations

import re
from urllib.parse import urlencode

from django.core import mail
from django.test import Client

from apps.organizations.accounts.account_emails import send_pending_emails
from apps.organizations.models import AuditEntry, User
from tests.support.cast import PASSWORD, Caller, World, signed_in

NEW = "olivia@sea.example"


def ask(world: World, email: str = NEW, password: str = PASSWORD) -> int:
    body = {"newEmail": email, "password": password}
    return int(signed_in(world.olivia).post("/auth/change-email", body).status_code)


def token_of(message: mail.EmailMessage) -> str:
    found = re.search(r"change-email\?token=(\S+)", str(message.body))
    assert found is not None
    return found[1]


def test_the_new_address_counts_once_it_is_confirmed_and_the_old_one_is_told(world: World) -> None:
    assert ask(world) == 200
    send_pending_emails()
    assert [message.to for message in mail.outbox] == [["olivia@example.com"], [NEW]]
    assert NEW in str(mail.outbox[0].body)
    assert "token" not in str(mail.outbox[0].body)
    world.olivia.refresh_from_db()
    assert world.olivia.email == "olivia@example.com"

    token = token_of(mail.outbox[1])
    assert Caller().post("/auth/change-email/confirm", {"token": token}).status_code == 200
    world.olivia.refresh_from_db()
    assert (world.olivia.email, world.olivia.wanted_email) == (NEW, "")
    entry = AuditEntry.objects.get(organization_id=world.acme.id, action="email.change")
    assert entry.details == {"changes": {"email": {"from": "olivia@example.com", "to": NEW}}}
    # A token is good once.
    assert Caller().post("/auth/change-email/confirm", {"token": token}).status_code == 400
    assert send_pending_emails() == 0


def test_without_the_password_nothing_is_asked_for(world: World) -> None:
    assert ask(world, password="not this one") == 401
    world.olivia.refresh_from_db()
    assert (world.olivia.wanted_email, world.olivia.email_change_wanted_at) == ("", None)


def test_an_address_with_an_account_gets_no_message_and_nobody_is_told(world: World) -> None:
    assert ask(world, email="sam@example.com") == 200
    send_pending_emails()
    assert mail.outbox == []
    assert User.objects.get(pk=world.sam.pk).email == "sam@example.com"


def test_an_address_that_was_taken_meanwhile_is_not_taken_over(world: World) -> None:
    ask(world)
    send_pending_emails()
    User.objects.create(email=NEW, name="Quicker")
    answer = Caller().post("/auth/change-email/confirm", {"token": token_of(mail.outbox[1])})
    assert answer.status_code == 400
    world.olivia.refresh_from_db()
    assert world.olivia.email == "olivia@example.com"


def test_another_wish_ends_the_one_before(world: World) -> None:
    ask(world)
    send_pending_emails()
    first = token_of(mail.outbox[1])
    ask(world, email="o@other.example")
    assert Caller().post("/auth/change-email/confirm", {"token": first}).status_code == 400
    world.olivia.refresh_from_db()
    assert world.olivia.email == "olivia@example.com"


def send(client: Client, token: str) -> int:
    form = urlencode({"token": token})
    return client.post("/change-email", form, content_type="application/x-www-form-urlencoded").status_code


def test_the_page_of_the_link_changes_nothing_until_its_button_is_pressed(world: World) -> None:
    ask(world)
    send_pending_emails()
    token, client = token_of(mail.outbox[1]), Caller().client
    assert client.get("/change-email", {"token": token}).status_code == 200
    assert User.objects.get(pk=world.olivia.pk).email == "olivia@example.com"
    assert send(client, token) == 200
    assert User.objects.get(pk=world.olivia.pk).email == NEW
    assert send(client, token) == 400
