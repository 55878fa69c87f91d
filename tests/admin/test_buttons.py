"""Buttons of the admin: what each does, once however often it is clicked, and only for whom it is meant."""
# length: a test for every button

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest
import responses
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse
from knox.models import AuthToken

from apps.billing.models import LedgerEntry
from apps.catalog import catalog_cache
from apps.catalog.catalog_cache import read_catalog
from apps.catalog.models import Model, ModelProvider, Provider
from apps.gateway.settlement import dead_letters, outbox
from apps.gateway.settlement.outbox import OutboxMessage
from apps.kernel.valkey import generation
from apps.kernel.valkey.redis import client as store
from apps.keys.models import ApiKey, ProviderKey
from apps.keys.secrets import encrypt_credential
from apps.organizations.actions import create_operator
from apps.organizations.credentials.sessions import start_session
from apps.organizations.models import AuditEntry, Organization, OrganizationDeletion, Plan, Project, Role, User
from tests.support.cast import PASSWORD, Caller, World, make_key, make_user
from tests.support.deletions import end_waiting_period

Row = Any


@pytest.fixture
def operator(db: None) -> Client:
    """A browser in which an operator has signed in."""
    client = Client()
    client.force_login(create_operator(email="op@example.com", password=PASSWORD))
    return client


def address(row: Row, button: str) -> str:
    """Return the address of a button of a row's page."""
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_{button}", args=[row.pk])


def ask(operator: Client, row: Row, button: str) -> str:
    """Open a button's page, and return its one-time token."""
    page = operator.get(address(row, button))
    assert page.status_code == 200, page
    return str(page.context["form"].initial["once"])


def press(operator: Client, row: Row, button: str, **answers: str) -> Any:
    """Press a button and answer what it asks; return the last answer."""
    return operator.post(address(row, button), {"once": ask(operator, row, button), **answers})


def errors_of(response: Any) -> dict[str, list[str]]:
    """Return what a button's page was refused for, by field."""
    assert response.status_code == 200, response
    return {name: list(words) for name, words in response.context["form"].errors.items()}


def last_entry() -> tuple[str, str, str | None]:
    """Return the latest entry of the audit log: what, by which kind, by whom."""
    entry = AuditEntry.objects.latest("id")
    return entry.action, entry.actor_type, entry.actor_email


BY_OPERATOR = ("admin", "op@example.com")


class TestOnce:
    def test_a_double_click_grants_once(self, operator: Client, world: World) -> None:
        answers = {"once": ask(operator, world.acme, "grant"), "amount": "5", "description": "sorry"}
        for _ in range(2):
            response = operator.post(address(world.acme, "grant"), answers)
            assert (response.status_code, response["Location"].endswith(f"{world.acme.pk}/change/")) == (302, True)
        world.acme.refresh_from_db()
        assert world.acme.credits == Decimal(5)
        assert LedgerEntry.objects.count() == 1
        assert last_entry() == ("credit_gift.create", *BY_OPERATOR)
        assert AuditEntry.objects.latest("id").details == {"amount": "5", "description": "sorry"}
        assert LogEntry.objects.get().change_message == "Grant credits"

    def test_a_page_that_was_used_does_nothing_else(self, operator: Client, world: World) -> None:
        answers = {"once": ask(operator, world.acme, "grant"), "amount": "5", "description": "sorry"}
        operator.post(address(world.acme, "grant"), answers)
        operator.post(address(world.acme, "grant"), {**answers, "amount": "50"})
        world.acme.refresh_from_db()
        assert world.acme.credits == Decimal(5)

    def test_without_the_token_of_a_page_nothing_is_done(self, operator: Client, world: World) -> None:
        response = operator.post(address(world.acme, "grant"), {"amount": "5", "description": "sorry"})
        assert response.status_code == 200
        assert response.context["form"].initial["once"]
        assert not LedgerEntry.objects.exists()

    def test_a_secret_is_shown_again_to_who_clicked_twice(self, operator: Client, world: World) -> None:
        key = make_key(world.olivia, world.project).key
        answers = {"once": ask(operator, key, "rotate")}
        shown = [operator.post(address(key, "rotate"), answers).context["done"].secret for _ in range(2)]
        assert shown[0] == shown[1]
        assert AuditEntry.objects.filter(action="api_key.rotate").count() == 1


class TestWhoMay:
    def test_each_button_has_its_permission(self, world: World) -> None:
        user = make_user("Otto")
        user.is_staff = True
        user.save()
        user.user_permissions.set(Permission.objects.filter(codename__in=["view_organization", "add_transaction"]))
        browser = Client()
        browser.force_login(user)
        page = browser.get(reverse("admin:organizations_organization_change", args=[world.acme.pk]))
        assert [one["title"] for one in page.context["actions_detail"]] == ["Grant credits"]
        assert press(browser, world.acme, "grant", amount="1", description="x").status_code == 302
        for button in ("change_plan", "suspend", "delete_for_good"):
            assert browser.get(address(world.acme, button)).status_code == 403
            assert browser.post(address(world.acme, button), {"once": "0" * 32, "name": "Acme"}).status_code == 403
        world.acme.refresh_from_db()
        assert (world.acme.status, world.acme.plan) == ("active", "free")
        assert [tab["title"] for tab in page.context["tabs"]] == ["Settings"]
        members = reverse("admin:organizations_organization_members", args=[world.acme.pk])
        assert browser.get(members).status_code == 403

    def test_nobody_else_may(self, world: World) -> None:
        for client in (Client(), Client()):
            assert client.post(address(world.acme, "grant"), {"amount": "5"}).status_code == 302
        assert not LedgerEntry.objects.exists()


class TestOrganizations:
    def test_an_amount_that_cannot_be_is_refused(self, operator: Client, world: World) -> None:
        for amount in ("0", "-1", "x", "1000001"):
            response = press(operator, world.acme, "grant", amount=amount, description="x")
            assert list(errors_of(response)) == ["amount"]
        assert not LedgerEntry.objects.exists()

    def test_a_plan_is_changed(self, operator: Client, world: World) -> None:
        assert press(operator, world.acme, "change_plan", plan="pro").status_code == 302
        world.acme.refresh_from_db()
        assert world.acme.plan == Plan.PRO
        assert last_entry() == ("organization.update", *BY_OPERATOR)

    def test_one_is_suspended_and_goes_on(self, operator: Client, world: World) -> None:
        press(operator, world.acme, "suspend")
        world.acme.refresh_from_db()
        assert world.acme.status == "inactive"
        assert operator.get(address(world.acme, "suspend")).status_code == 302, "it is already"
        press(operator, world.acme, "reactivate")
        world.acme.refresh_from_db()
        assert world.acme.status == "active"

    def test_one_is_deleted_by_its_name(self, operator: Client, world: World) -> None:
        Organization.objects.filter(pk=world.acme.pk).update(auto_top_up_enabled=True)
        assert "This cannot be undone" in operator.get(address(world.acme, "delete_for_good")).content.decode()
        response = press(operator, world.acme, "delete_for_good", name="acme")
        assert errors_of(response) == {
            "name": ["The name does not match: it is Acme"],
            "reason": ["This field is required."],
        }
        world.acme.refresh_from_db()
        assert (world.acme.status, world.acme.auto_top_up_enabled) == ("active", True)
        answers = {"name": "Acme", "reason": "asked by mail"}
        assert press(operator, world.acme, "delete_for_good", **answers).status_code == 302
        world.acme.refresh_from_db()
        assert (world.acme.status, world.acme.auto_top_up_enabled) == ("deleting", False)
        assert last_entry() == ("organization.request_deletion", *BY_OPERATOR)
        entry = OrganizationDeletion.objects.get()
        assert (entry.actor_type, entry.actor_email, entry.reason) == ("admin", "op@example.com", "asked by mail")
        assert press(operator, world.acme, "cancel_deletion").status_code == 302
        world.acme.refresh_from_db()
        assert world.acme.status == "active"
        assert last_entry() == ("organization.cancel_deletion", *BY_OPERATOR)
        press(operator, world.acme, "delete_for_good", **answers)
        assert end_waiting_period() == [world.acme.pk]
        world.acme.refresh_from_db()
        assert world.acme.status == "deleted"
        assert set(world.acme.projects.values_list("status", flat=True)) == {Project.Status.DELETED}
        page = operator.get(reverse("admin:organizations_organization_change", args=[world.acme.pk]))
        assert page.context["actions_detail"] == []
        assert not page.context["has_change_permission"]

    def test_deleted_is_in_no_dropdown(self, operator: Client, world: World) -> None:
        key = make_key(world.olivia, world.project).key
        for row in (world.project, key):
            path = reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])
            form = operator.get(path).context["adminform"].form
            assert "deleted" not in dict(form.fields["status"].choices)
            data = {name: value for name, value in form.initial.items() if value is not None and name in form.fields}
            response = operator.post(path, {**data, "allowed_origins": "", "status": "deleted"})
            assert "status" in response.context["adminform"].form.errors
            row.refresh_from_db()
            assert row.status == "active"

    def test_a_project_is_deleted(self, operator: Client, world: World) -> None:
        press(operator, world.project, "delete_project_for_good", name=world.project.name)
        world.project.refresh_from_db()
        assert world.project.status == "deleted"
        assert last_entry() == ("project.delete", *BY_OPERATOR)

    def test_an_operator_creates_an_organization_for_a_user(self, operator: Client, world: World) -> None:
        User.objects.filter(pk=world.dana.pk).update(organization_limit=0)
        assert press(operator, world.dana, "create_organization_for", name="Extra").status_code == 302
        made = Organization.objects.get(name="Extra")
        assert (made.plan, made.credits, [one.name for one in made.projects.all()]) == ("free", 0, ["Default Project"])
        assert [(one.user, one.role) for one in made.memberships.all()] == [(world.dana, Role.OWNER)]
        assert last_entry() == ("organization.create", *BY_OPERATOR)

    def test_somebody_is_signed_out_everywhere(self, operator: Client, world: World) -> None:
        token, browser = start_session(world.dana), Client()
        browser.force_login(world.dana)
        press(operator, world.dana, "end_sessions_of")
        assert not AuthToken.objects.filter(user=world.dana).exists()
        assert Caller(token).get("/auth/get-session").status_code == 401
        assert "_auth_user_id" not in browser.session
        assert last_entry() == ("user.sign_out", *BY_OPERATOR)
        assert operator.get("/admin/organizations/user/").status_code == 200, "the operator stays"


class TestKeys:
    def test_one_is_rotated_and_keeps_its_place(self, operator: Client, world: World) -> None:
        made = make_key(world.olivia, world.project, usage_limit=Decimal(3))
        response = press(operator, made.key, "rotate")
        secret = response.context["done"].secret
        assert "no-store" in response["Cache-Control"]
        row = ApiKey.objects.get()
        assert (row.pk, row.usage_limit, row.last_four) == (made.key.pk, Decimal(3), secret[-4:])
        assert Caller(made.token).get("/logs").status_code == 401
        assert Caller(secret).get("/logs").status_code == 200
        entry = AuditEntry.objects.latest("id")
        assert (entry.action, secret in str(entry.details)) == ("api_key.rotate", False)

    def test_one_is_revoked(self, operator: Client, world: World) -> None:
        made = make_key(world.olivia, world.project)
        press(operator, made.key, "revoke")
        assert ApiKey.objects.get().status == "deleted"
        assert Caller(made.token).get("/logs").status_code == 401
        assert last_entry() == ("api_key.delete", *BY_OPERATOR)
        assert operator.get(address(made.key, "rotate")).status_code == 302, "it has ended"

    @responses.activate
    def test_a_credential_is_tried(self, operator: Client, world: World) -> None:
        Provider.objects.create(
            id="acme-ai", name="Acme AI", dialect="openai", auth="bearer", base_url="http://acme.test/v1"
        )
        key = ProviderKey.objects.create(
            organization=world.acme, provider="acme-ai", encrypted_token=encrypt_credential("sk-good")
        )
        catalog_cache.refresh(generation.read_generation_token(generation.CATALOG))
        answer = responses.get("http://acme.test/v1/models", status=200, json={"data": []})
        assert press(operator, key, "check_credential").status_code == 302
        assert answer.calls[0].request.headers["Authorization"] == "Bearer sk-good"
        responses.replace("GET", "http://acme.test/v1/models", status=401, json={"error": {"message": "bad key"}})
        response = press(operator, key, "check_credential")
        assert "the provider answered 401: bad key" in response.content.decode()
        key.refresh_from_db()
        assert key.status == "active"

    def test_a_credential_is_erased(self, operator: Client, world: World) -> None:
        key = ProviderKey.objects.create(
            organization=world.acme, provider="acme-ai", encrypted_token=encrypt_credential("sk-good")
        )
        press(operator, key, "delete_credential")
        key.refresh_from_db()
        assert (key.status, bytes(key.encrypted_token)) == ("deleted", b"")

    def test_a_credential_is_not_deleted_by_its_status(self, operator: Client, world: World) -> None:
        key = ProviderKey.objects.create(
            organization=world.acme, provider="acme-ai", encrypted_token=encrypt_credential("sk-good")
        )
        page = reverse("admin:keys_providerkey_change", args=[key.pk])
        assert operator.post(page, {"status": "deleted"}).status_code == 200
        key.refresh_from_db()
        assert (key.status, bytes(key.encrypted_token) == b"") == ("active", False)


class TestCatalog:
    @pytest.fixture
    def mapping(self, db: None) -> ModelProvider:
        """A model at a provider."""
        provider = Provider.objects.create(
            id="acme-ai", name="Acme AI", dialect="openai", auth="bearer", base_url="http://acme.test"
        )
        model = Model.objects.create(id="acme-1", name="Acme 1", family="acme", mode="chat", file_owned=True)
        row: ModelProvider = ModelProvider.objects.create(provider=provider, model=model, model_name="acme-one")
        return row

    def test_a_mapping_is_switched_off_and_on(self, operator: Client, mapping: ModelProvider) -> None:
        assert "No other provider serves it" in operator.get(address(mapping, "switch_off")).content.decode()
        for button, active in (("switch_off", False), ("switch_on", True)):
            press(operator, mapping, button)
            mapping.refresh_from_db()
            assert mapping.active is active
        assert [one.change_message for one in LogEntry.objects.order_by("id")] == ["Switch off", "Switch on"]

    def test_a_model_is_deprecated_for_all_its_providers(self, operator: Client, mapping: ModelProvider) -> None:
        response = press(operator, mapping.model, "deprecate", retiring_on="2026-12-01", retired_on="2026-11-01")
        assert errors_of(response) == {"retired_on": ["Must not be before it is deprecated"]}
        press(operator, mapping.model, "deprecate", retiring_on="2026-12-01", retired_on="2027-01-01")
        [offer] = read_catalog("1").models["acme-1"].offers
        assert (offer.deprecated_at, offer.deactivated_at) == (date(2026, 12, 1), date(2027, 1, 1))
        ModelProvider.objects.update(deactivated_at=date(2026, 12, 24))
        [offer] = read_catalog("2").models["acme-1"].offers
        assert offer.deactivated_at == date(2026, 12, 24), "the provider's own end is earlier"


def test_broken_records_go_back_to_the_queue(operator: Client) -> None:
    store().delete(dead_letters.STREAMS[0], outbox.STREAMS[0])
    dead_letters.add(OutboxMessage("1-0", "worker-1", "{"))
    path = reverse("admin:gateway_reconciliation_replay_broken")
    page = operator.get(path)
    assert "1 record of requests could not be read" in page.content.decode()
    answers = {"once": page.context["form"].initial["once"]}
    for _ in range(2):
        assert operator.post(path, answers).status_code == 302
    assert dead_letters.count() == 0
    [(_, fields)] = store().xrange(outbox.STREAMS[0]) or []
    assert fields == {"worker": "worker-1", "record": "{"}
    store().delete(outbox.STREAMS[0])
