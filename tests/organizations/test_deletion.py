"""Deletion of organizations: the waiting period, the journal of operators, e-mails, and the books that stay."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from smtplib import SMTPException
from typing import Any

import pytest
from django.core import mail
from django.core.mail import EmailMessage
from django.utils import timezone

from apps.billing import ledger
from apps.billing.models import BillingAccount, Invoice, Transaction
from apps.billing.subscription import accounts_to_cancel
from apps.kernel.errors import InvalidRequest, NotFound
from apps.organizations import deletion
from apps.organizations.journal import audit
from apps.organizations.models import AuditEntry, Membership, Organization, OrganizationDeletion, Role
from apps.organizations.tasks import erase, send_messages
from tests.support.cast import World, join, make_key, make_user
from tests.support.deletions import end_waiting_period


def request(world: World, reason: str = "") -> OrganizationDeletion:
    """Request the deletion of Acme as Olivia; return the journal's entry."""
    with audit.acting(world.olivia):
        deletion.request_deletion(organization=world.acme, reason=reason)
    return OrganizationDeletion.objects.get(organization_id=world.acme.id, cancelled_at=None)


class TestTheJournal:
    def test_it_outlives_the_organization_with_who_when_why_and_what(self, world: World) -> None:
        make_key(world.dana, world.project)
        ledger.grant(world.acme.id, Decimal("12.5"), "a gift")
        before = timezone.now()
        request(world, "  moved away ")
        assert end_waiting_period() == [world.acme.id]
        erase()
        assert Organization.objects.get(pk=world.acme.pk).name == ""
        assert not AuditEntry.objects.filter(organization_id=world.acme.pk).exists()
        entry = OrganizationDeletion.objects.get()
        assert (entry.organization_id, entry.organization_name, entry.reason) == (world.acme.id, "Acme", "moved away")
        assert (entry.actor_type, entry.actor_id, entry.actor_email) == ("session", world.olivia.id, world.olivia.email)
        assert (entry.balance, entry.previous_status) == (Decimal("12.5"), "active")
        assert before <= entry.requested_at <= entry.due_at <= entry.completed_at <= timezone.now()
        counts = entry.row_counts
        assert (counts["keys.apikey"], counts["organizations.membership"], counts["organizations.project"]) == (1, 3, 1)
        assert (counts["billing.ledgerentry"], counts["billing.transaction"]) == (1, 1)
        assert "organizations.organizationdeletion" not in counts
        # Another run changes nothing.
        assert deletion.complete_due() == []
        erase()
        assert list(OrganizationDeletion.objects.values()) == list(OrganizationDeletion.objects.values())
        assert OrganizationDeletion.objects.get().completed_at == entry.completed_at

    def test_one_that_is_not_due_stays(self, world: World) -> None:
        entry = request(world)
        assert entry.due_at - entry.requested_at == timedelta(days=7)
        erase()
        assert Organization.objects.get(pk=world.acme.pk).status == "deleting"
        assert OrganizationDeletion.objects.get().completed_at is None

    def test_a_second_request_and_one_for_a_deleted_organization_change_nothing(self, world: World) -> None:
        request(world)
        with pytest.raises(InvalidRequest) as refused:
            deletion.request_deletion(organization=world.acme)
        assert (refused.value.status, refused.value.code) == (409, "already_deleting")
        assert OrganizationDeletion.objects.count() == 1
        end_waiting_period()
        with pytest.raises(NotFound):
            deletion.request_deletion(organization=world.acme)
        with pytest.raises(NotFound):
            deletion.cancel_deletion(organization=world.acme)
        assert OrganizationDeletion.objects.count() == 1

    def test_a_suspended_organization_is_suspended_again_after_a_cancellation(self, world: World) -> None:
        Organization.objects.filter(pk=world.acme.pk).update(status="inactive")
        entry = request(world)
        with audit.acting(world.adam):
            row = deletion.cancel_deletion(organization=world.acme)
        assert (row.status, row.deletion_due_at) == ("inactive", None)
        entry.refresh_from_db()
        assert (entry.cancelled_by, entry.completed_at) == (world.adam.email, None)
        with pytest.raises(InvalidRequest):
            deletion.cancel_deletion(organization=world.acme)
        # Requested again, it is another entry.
        request(world)
        assert OrganizationDeletion.objects.count() == 2


class TestMails:
    def test_every_owner_is_told_of_each_step(self, world: World, mailoutbox: Any) -> None:
        join(world.acme, make_user("Olga"), Role.OWNER)
        entry = request(world, "moved away")
        send_messages()
        send_messages()
        (first,) = mail.outbox
        assert (first.to, first.bcc) == ([], ["olga@example.com", "olivia@example.com"])
        assert first.subject == f"Acme will be deleted on {entry.due_at:%Y-%m-%d}"
        assert "olivia@example.com requested the deletion" in first.body
        assert "The reason: moved away." in first.body
        assert f"/app/o/{world.acme.id}/settings/delete" in first.body
        with audit.acting(world.olivia):
            deletion.cancel_deletion(organization=world.acme)
        send_messages()
        assert mail.outbox[1].subject == "Acme will not be deleted"
        request(world)
        send_messages()
        end_waiting_period()
        erase()
        assert not Membership.objects.filter(organization=world.acme).exists()
        send_messages()
        assert mail.outbox[3].subject == "Acme was deleted"
        assert mail.outbox[3].bcc == ["olga@example.com", "olivia@example.com"]
        assert set(OrganizationDeletion.objects.values_list("notice", flat=True)) == {""}
        assert [one.recipients for one in OrganizationDeletion.objects.all()] == [[], []]

    def test_one_that_cannot_be_sent_waits_for_at_most_30_days(
        self, world: World, mailoutbox: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(message: EmailMessage) -> int:
            raise SMTPException

        entry = request(world)
        with monkeypatch.context() as broken:
            broken.setattr(EmailMessage, "send", fail)
            assert deletion.send_notices() == 0
        entry.refresh_from_db()
        assert (entry.notice, entry.recipients) == ("requested", ["olivia@example.com"])
        assert (deletion.send_notices(), len(mail.outbox)) == (1, 1)
        OrganizationDeletion.objects.update(
            notice="requested", recipients=["olivia@example.com"], due_at=timezone.now() - timedelta(days=31)
        )
        assert (deletion.send_notices(), len(mail.outbox)) == (1, 1)
        assert OrganizationDeletion.objects.get().recipients == []

    def test_a_line_break_in_a_name_adds_no_header(self, world: World, mailoutbox: Any) -> None:
        Organization.objects.filter(pk=world.acme.pk).update(name="Acme\r\nBcc: sam@example.com")
        request(world)
        assert deletion.send_notices() == 1
        assert mail.outbox[0].subject.startswith("Acme Bcc: sam@example.com will be deleted on")


class TestMoney:
    def test_an_invoice_that_nobody_requested_is_issued_with_the_billing_address(self, world: World) -> None:
        Organization.objects.filter(pk=world.acme.pk).update(billing_company="Acme Ltd", billing_address="1 Road")
        paid = Transaction.objects.create(
            organization=world.acme, type="credit_topup", amount=10, credit_amount=10, status="completed"
        )
        pending = Transaction.objects.create(organization=world.acme, type="credit_topup", amount=5)
        request(world)
        end_waiting_period()
        erase()
        invoice = Invoice.objects.get()
        assert invoice.transaction == paid
        assert (invoice.recipient["name"], invoice.recipient["address"]) == ("Acme Ltd", "1 Road")
        assert Transaction.objects.filter(pk=pending.pk).exists()

    def test_a_subscription_is_to_be_cancelled_at_the_processor(self, world: World) -> None:
        account = BillingAccount.objects.create(
            organization=world.acme, subscription_id="sub_1", subscription_status="active"
        )
        assert list(accounts_to_cancel()) == []
        request(world)
        assert list(accounts_to_cancel()) == [account]
        BillingAccount.objects.update(cancels_at_period_end=True)
        assert list(accounts_to_cancel()) == []
