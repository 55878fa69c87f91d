"""Organizations: creating, changing and deleting them, their transactions and referrals (section 4.2)."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from threading import Thread
from typing import Any

import pytest
from django.db import connection
from django.test import TestCase
from django.utils import timezone
from knox.models import AuthToken

from apps.billing.models import Transaction
from apps.kernel.rest.pages import write_cursor
from apps.organizations.credentials import two_factor
from apps.organizations.deletion import complete_due
from apps.organizations.models import Membership, Organization, OrganizationDeletion, Project, Role, User
from tests.support.cast import PASSWORD, World, make_organization, make_user, signed_in
from tests.support.deletions import end_waiting_period
from tests.support.upstream import Caller as ModelCaller
from tests.support.upstream import nothing_happened, settle_all
from tests.support.webauthn_authenticator import PROOF, add_passkey, answer


def change(user: User, organization: Organization, **changes: Any) -> Any:
    """Ask for changes of an organization; return the response."""
    return signed_in(user).send("PATCH", f"/organization/{organization.id}", changes)


class TestCreating:
    def test_the_caller_becomes_owner_and_a_default_project_is_created(self, world: World) -> None:
        response = signed_in(world.dana).post("/organization", {"name": "Dana's own"})
        assert response.status_code == 200
        row = Organization.objects.get(name="Dana's own")
        assert response.json() == {
            "organization": {
                "id": str(row.id),
                "name": "Dana's own",
                "billingEmail": "dana@example.com",
                "billingCompany": None,
                "billingAddress": None,
                "billingTaxId": None,
                "billingNotes": None,
                "credits": "0",
                "plan": "free",
                "planExpiresAt": None,
                "retentionLevel": "none",
                "outagePolicy": "open",
                "status": "active",
                "deletionDueAt": None,
                "autoTopUpEnabled": False,
                "autoTopUpThreshold": "10",
                "autoTopUpAmount": "10",
                "referralEarnings": "0",
                "isPersonal": False,
                "devPlan": "none",
                "devPlanCreditsUsed": "0",
                "devPlanCreditsLimit": "0",
                "devPlanBillingCycleStart": None,
                "devPlanExpiresAt": None,
                "devPlanAllowAllModels": False,
                "createdAt": row.created_at.isoformat().replace("+00:00", "Z"),
                "updatedAt": row.updated_at.isoformat().replace("+00:00", "Z"),
            }
        }
        assert list(row.memberships.values_list("user", "role")) == [(world.dana.id, "owner")]
        assert list(row.projects.values_list("name", "mode", "status")) == [("Default Project", "hybrid", "active")]

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            ({}, "Required"),
            ({"name": ""}, "Must not be blank"),
            ({"name": "x" * 256}, "Must be at most 255 characters long"),
            ({"name": 5}, "Must be a string"),
            ({"name": None}, "Must not be null"),
        ],
    )
    def test_a_bad_name_is_400(self, world: World, body: dict[str, Any], message: str) -> None:
        response = signed_in(world.dana).post("/organization", body)
        assert response.status_code == 400
        assert response.json()["issues"] == [{"path": "name", "message": message}]
        assert Organization.objects.count() == 2

    def test_past_three_organizations_of_a_user_it_is_403(self, world: World) -> None:
        caller = signed_in(world.olivia)
        for name in ("Second", "Third"):
            assert caller.post("/organization", {"name": name}).status_code == 200
        response = caller.post("/organization", {"name": "Fourth"})
        assert (response.status_code, response.json()) == (
            403,
            {"message": "The limit of 3 organizations was reached"},
        )
        assert Membership.objects.filter(user=world.olivia).count() == 3
        assert not Organization.objects.filter(name="Fourth").exists()
        # A deleted organization no longer counts, one whose deletion can be cancelled does, another user's never did.
        assert caller.send("DELETE", f"/organization/{world.acme.id}", {}).status_code == 200
        assert caller.post("/organization", {"name": "Fourth"}).status_code == 403
        assert end_waiting_period() == [world.acme.id]
        Membership.objects.create(organization=world.elsewhere, user=world.olivia, role=Role.ADMIN)
        assert caller.post("/organization", {"name": "Fourth"}).status_code == 200

    def test_an_operator_raises_the_limit_for_one_user(self, world: World) -> None:
        User.objects.filter(pk=world.olivia.pk).update(organization_limit=2)
        caller = signed_in(world.olivia)
        assert caller.post("/organization", {"name": "Second"}).status_code == 200
        response = caller.post("/organization", {"name": "Third"})
        assert (response.status_code, response.json()) == (
            403,
            {"message": "The limit of 2 organizations was reached"},
        )
        User.objects.filter(pk=world.olivia.pk).update(organization_limit=3)
        assert caller.post("/organization", {"name": "Third"}).status_code == 200
        assert Membership.objects.filter(user=world.olivia).count() == 3


@pytest.mark.django_db(transaction=True)
def test_organizations_created_at_once_never_pass_the_limit() -> None:
    caller = signed_in(make_user("Olivia"))
    statuses: list[int] = []

    def create_one() -> None:
        statuses.append(caller.post("/organization", {"name": "at once"}).status_code)
        connection.close()

    threads = [Thread(target=create_one) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200] * 3 + [403] * 3
    assert Organization.objects.count() == 3


class TestChanging:
    def test_every_setting_is_kept_and_answered(self, world: World) -> None:
        changes = {
            "name": "Acme & Co",
            "billingEmail": "books@example.com",
            "billingCompany": "Acme Ltd",
            "billingAddress": "1 Road\nTown",
            "billingTaxId": "GB123",
            "retentionLevel": "retain",
            "autoTopUpEnabled": True,
            "autoTopUpThreshold": 5,
            "autoTopUpAmount": 10.25,
        }
        response = change(world.olivia, world.acme, **changes)
        assert response.status_code == 200
        answer = response.json()
        assert answer["message"] == "Organization updated"
        expected = {**changes, "autoTopUpThreshold": "5", "autoTopUpAmount": "10.25"}
        assert {name: answer["organization"][name] for name in changes} == expected
        world.acme.refresh_from_db()
        assert world.acme.auto_top_up_amount == Decimal("10.25")
        assert (world.acme.billing_tax_id, world.acme.retention_level) == ("GB123", "retain")

    def test_only_what_is_named_changes(self, world: World) -> None:
        stale = Organization.objects.get(pk=world.acme.pk)
        Organization.objects.filter(pk=world.acme.pk).update(credits=Decimal("7.5"))
        response = change(world.olivia, stale, billingCompany="Acme Ltd")
        organization = response.json()["organization"]
        assert (organization["name"], organization["credits"], organization["billingEmail"]) == (
            "Acme",
            "7.5",
            "olivia@example.com",
        )
        assert change(world.olivia, world.acme, billingCompany=None).json()["organization"]["billingCompany"] is None

    def test_what_is_not_theirs_to_set_is_ignored(self, world: World) -> None:
        response = change(world.olivia, world.acme, plan="enterprise", credits="1000", status="deleted")
        organization = response.json()["organization"]
        assert (organization["plan"], organization["credits"], organization["status"]) == ("free", "0", "active")

    @pytest.mark.parametrize(
        ("field", "value", "message"),
        [
            ("name", "", "Must not be blank"),
            ("name", "x" * 256, "Must be at most 255 characters long"),
            ("billingEmail", "nobody", "Must be an e-mail address"),
            ("retentionLevel", "forever", "Must be one of: none, metadata, retain"),
            ("autoTopUpEnabled", "perhaps", "Must be true or false"),
            ("autoTopUpThreshold", 4.99, "Must be at least 5 USD"),
            ("autoTopUpThreshold", "4.99", "Must be at least 5 USD"),
            ("autoTopUpAmount", 9, "Must be at least 10 USD"),
            ("autoTopUpAmount", True, 'Must be an amount such as "12.50", at least 0'),
            ("autoTopUpAmount", -20, 'Must be an amount such as "12.50", at least 0'),
            ("autoTopUpAmount", 1e30, 'Must be an amount such as "12.50", at least 0'),
            ("autoTopUpAmount", None, "Must not be null"),
        ],
    )
    def test_a_bad_value_is_400_and_changes_nothing(self, world: World, field: str, value: Any, message: str) -> None:
        before = Organization.objects.filter(pk=world.acme.pk).values().get()
        response = change(world.olivia, world.acme, **{"billingCompany": "Acme Ltd", field: value})
        assert response.status_code == 400
        assert response.json()["issues"] == [{"path": field, "message": message}]
        assert Organization.objects.filter(pk=world.acme.pk).values().get() == before

    def test_an_admin_is_told_what_it_needs(self, world: World) -> None:
        response = change(world.adam, world.acme, name="Adam's", retentionLevel="retain")
        assert (response.status_code, response.json()) == (
            403,
            {"message": "This needs the role owner in the organization; yours is admin"},
        )
        world.acme.refresh_from_db()
        assert (world.acme.name, world.acme.retention_level) == ("Acme", "none")


class TestDeleting:
    def test_an_old_session_takes_proof(self, world: World) -> None:
        """A session left open, or stolen, does not do for what cannot be undone."""
        caller, path = signed_in(world.olivia), f"/organization/{world.acme.id}"
        made = add_passkey(caller)
        codes = two_factor.renew_recovery_codes(world.olivia)
        AuthToken.objects.update(created=timezone.now() - timedelta(minutes=11))
        refused = caller.send("DELETE", path, b"")
        assert refused.status_code == 403
        assert refused.json() == {
            "message": "Your session is older than ten minutes: sign in again, or send proof of identity: your "
            "`password` (with a `code` if a second factor is on) or a `passkey`"
        }
        wrong: dict[str, str]
        for wrong in ({"password": "not hers"}, {"password": PASSWORD}, {"password": PASSWORD, "code": "000000"}):
            assert caller.send("DELETE", path, wrong).status_code == 401
        world.acme.refresh_from_db()
        assert world.acme.status == "active"
        # A member who may not delete it is asked for no proof.
        old = signed_in(world.adam)
        AuthToken.objects.update(created=timezone.now() - timedelta(minutes=11))
        assert "needs the role owner" in old.send("DELETE", path, b"").json()["message"]
        by = {"passkey": answer(caller, made, PROOF)}
        assert caller.send("DELETE", path, by).json()["message"] == "Organization will be deleted"
        another = make_organization(owner=world.olivia, name="Another")
        body = {"password": PASSWORD, "code": codes[0]}
        assert caller.send("DELETE", f"/organization/{another.id}", body).status_code == 200

    def test_a_proof_that_is_wrong_is_refused_in_a_new_session_too(self, world: World) -> None:
        body = {"password": "not hers"}
        assert signed_in(world.olivia).send("DELETE", f"/organization/{world.acme.id}", body).status_code == 401
        world.acme.refresh_from_db()
        assert world.acme.status == "active"

    def test_it_waits_for_seven_days_and_an_owner_can_cancel(self, world: World) -> None:
        Organization.objects.filter(pk=world.acme.pk).update(auto_top_up_enabled=True)
        owner, path = signed_in(world.olivia), f"/organization/{world.acme.id}"
        before = timezone.now()
        response = owner.send("DELETE", path, {"reason": "moved to another place"})
        entry = OrganizationDeletion.objects.get()
        due = entry.due_at.isoformat().replace("+00:00", "Z")
        assert response.json() == {"message": "Organization will be deleted", "deletionDueAt": due}
        assert timedelta(days=7) <= entry.due_at - before < timedelta(days=7, minutes=1)
        assert complete_due() == []
        assert owner.send("DELETE", path, {}).status_code == 409
        shown = signed_in(world.dana).get("/organization").json()["organizations"]
        assert [(one["status"], one["deletionDueAt"], one["autoTopUpEnabled"]) for one in shown] == [
            ("deleting", due, False)
        ]
        for user in (world.adam, world.dana, world.sam):
            assert signed_in(user).post(f"{path}/cancel-deletion").status_code == 403
        cancelled = owner.post(f"{path}/cancel-deletion").json()
        assert cancelled["message"] == "Deletion cancelled"
        fields = cancelled["organization"]
        assert (fields["status"], fields["deletionDueAt"], fields["autoTopUpEnabled"]) == ("active", None, False)
        assert owner.post(f"{path}/cancel-deletion").status_code == 409
        assert end_waiting_period() == []
        assert set(Project.objects.filter(organization=world.acme).values_list("status", flat=True)) == {"active"}

    @pytest.mark.parametrize("reason", [5, "x" * 501, "a\u202eb"])
    def test_a_reason_that_is_none_deletes_nothing(self, world: World, reason: Any) -> None:
        response = signed_in(world.olivia).send("DELETE", f"/organization/{world.acme.id}", {"reason": reason})
        assert (response.status_code, "reason" in response.json()["message"]) == (400, True)
        world.acme.refresh_from_db()
        assert (world.acme.status, OrganizationDeletion.objects.count()) == ("active", 0)

    def test_it_is_gone_with_its_projects_for_everyone(self, world: World) -> None:
        assert signed_in(world.olivia).send("DELETE", f"/organization/{world.acme.id}", {}).status_code == 200
        assert end_waiting_period() == [world.acme.id]
        assert Organization.objects.get(pk=world.acme.pk).status == "deleted"
        assert set(Project.objects.filter(organization=world.acme).values_list("status", flat=True)) == {"deleted"}
        assert Organization.objects.get(pk=world.elsewhere.pk).status == "active"
        for user in (world.olivia, world.adam, world.dana):
            assert signed_in(user).get("/organization").json() == {"organizations": []}

    def test_a_warm_worker_refuses_the_next_request(self, caller: ModelCaller) -> None:
        assert caller.chat().status_code == 200
        settle_all()
        owner = User.objects.get(email="olivia@example.com")
        with TestCase.captureOnCommitCallbacks(execute=True):
            response = signed_in(owner).send("DELETE", f"/organization/{caller.organization_id}", {})
        assert response.status_code == 200
        answer = caller.chat()
        due = OrganizationDeletion.objects.get().due_at
        refusal = (
            f"This organization will be deleted on {due:%Y-%m-%d %H:%M} UTC, and its keys are refused; an owner can "
            "cancel the deletion in the console, under Settings"
        )
        assert (answer.status_code, answer.json()["message"]) == (410, refusal)
        logs = caller.client.get("/logs", headers={"x-api-key": caller.token})
        assert (logs.status_code, logs.json()["message"]) == (401, refusal)
        assert nothing_happened(caller)
        with TestCase.captureOnCommitCallbacks(execute=True):
            assert signed_in(owner).post(f"/organization/{caller.organization_id}/cancel-deletion").status_code == 200
        assert caller.chat().status_code == 200


class TestTransactions:
    def test_newest_first_with_every_field(self, world: World) -> None:
        first = Transaction.objects.create(
            organization=world.acme,
            type="credit_topup",
            amount=Decimal("10.50"),
            credit_amount=10,
            status="completed",
            processor_payment_intent_id="pi_1",
            description="Top-up",
        )
        second = Transaction.objects.create(
            organization=world.acme,
            type="credit_refund",
            amount=5,
            related_transaction=first,
            refund_reason="by mistake",
        )
        Transaction.objects.create(organization=world.elsewhere, type="credit_gift", amount=1)
        answer = signed_in(world.olivia).get(f"/organization/{world.acme.id}/transactions").json()
        assert [one["id"] for one in answer["transactions"]] == [str(second.id), str(first.id)]
        assert answer["transactions"][1] == {
            "id": str(first.id),
            "organizationId": str(world.acme.id),
            "type": "credit_topup",
            "amount": "10.5",
            "creditAmount": "10",
            "currency": "USD",
            "status": "completed",
            "processorPaymentIntentId": "pi_1",
            "processorInvoiceId": None,
            "description": "Top-up",
            "relatedTransactionId": None,
            "refundReason": None,
            "createdAt": first.created_at.isoformat().replace("+00:00", "Z"),
            "updatedAt": first.updated_at.isoformat().replace("+00:00", "Z"),
        }
        refund = answer["transactions"][0]
        assert (refund["relatedTransactionId"], refund["refundReason"], refund["creditAmount"]) == (
            str(first.id),
            "by mistake",
            None,
        )
        assert answer["pagination"] == {"nextCursor": None, "hasMore": False, "limit": 50}

    def test_a_page_at_a_time(self, world: World) -> None:
        rows = [Transaction.objects.create(organization=world.acme, type="credit_gift", amount=n) for n in range(3)]
        caller, path = signed_in(world.adam), f"/organization/{world.acme.id}/transactions"
        page = caller.get(path, limit="2").json()
        assert [one["amount"] for one in page["transactions"]] == ["2", "1"]
        assert page["pagination"] == {"nextCursor": write_cursor(rows[1].id), "hasMore": True, "limit": 2}
        rest = caller.get(path, limit="2", cursor=page["pagination"]["nextCursor"]).json()
        assert [one["amount"] for one in rest["transactions"]] == ["0"]
        assert rest["pagination"]["hasMore"] is False
        for query in ({"limit": "0"}, {"limit": "101"}, {"cursor": "nonsense"}):
            assert caller.get(path, **query).status_code == 400


def test_referral_stats(world: World) -> None:
    path = f"/organization/{world.acme.id}/referral-stats"
    assert signed_in(world.dana).get(path).json() == {"referredCount": 0, "referralEarnings": "0"}
    referred = make_organization(owner=make_user("Rita"), name="Referred")
    Organization.objects.filter(pk=referred.pk).update(referred_by=world.acme)
    Organization.objects.filter(pk=world.acme.pk).update(referral_earnings=Decimal("0.25"))
    assert signed_in(world.dana).get(path).json() == {"referredCount": 1, "referralEarnings": "0.25"}
