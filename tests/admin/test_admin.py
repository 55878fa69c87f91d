"""The admin: operators sign in, see every table, change the fields that they may change, and never meet a secret."""
# length: one row of every table, and what holds for the pages of each

from __future__ import annotations

import re
from collections import defaultdict
from datetime import UTC, datetime
from decimal import Decimal
from html import unescape
from typing import Any
from urllib.parse import parse_qsl

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import Group
from django.db import connection
from django.db.models import Model as Row
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from knox.models import AuthToken

from apps.alerts.models import Alert, AlertDelivery, AlertReader, AlertWatch
from apps.batches.models import Batch, BatchLine, FileChunk, NativeJob, StoredFile, Upload
from apps.billing import ledger
from apps.billing.models import (
    BillingAccount,
    Discount,
    Invoice,
    LedgerEntry,
    LedgerEpoch,
    PaymentMethod,
    ProcessorEvent,
    Transaction,
)
from apps.catalog.models import (
    CatalogProposal,
    Model,
    ModelProvider,
    PriceChange,
    PriceListReading,
    Provider,
    ScheduledPriceChange,
)
from apps.destinations.credentials import WebhookSecret
from apps.destinations.credentials import encrypt_credentials as encrypt_sink_credentials
from apps.gateway.models import BalanceSheet, ClearingAccount, Difference, Reconciliation
from apps.guardrails.models import CustomRule, GuardrailConfig, Violation
from apps.kernel.ids import new_id, time_of
from apps.kernel.valkey import generation
from apps.keys.models import ApiKey, IamRule, ProviderKey
from apps.keys.secrets import encrypt_credential
from apps.limits.models import Limit, LimitCharge, LimitCounter, PlanLimit
from apps.log_sinks.models import LogSink, WaitingRow
from apps.logs import partitions
from apps.logs.models import (
    ActivityDay,
    ActivityDelta,
    LogRetention,
    PerformanceDelta,
    PerformanceSlot,
    RefusedHour,
    RequestLog,
    SavedView,
    TrafficDelta,
    TrafficSlot,
)
from apps.mcp_servers.credentials import Credentials, encrypt_credentials
from apps.mcp_servers.models import McpServer
from apps.organizations.actions import create_operator
from apps.organizations.credentials import attempt_rate_limiter
from apps.organizations.credentials.sessions import start_session
from apps.organizations.invitations import invite
from apps.organizations.models import (
    AuditEntry,
    IdempotentAnswer,
    Membership,
    Organization,
    OrganizationDeletion,
    Passkey,
    Plan,
    Project,
    TwoFactor,
    User,
)
from apps.organizations.teams.actions import add_team_member, create_service_account, create_team
from apps.provider_bills.models import BillComparison, BillDifference, BillLine, BillReading
from apps.responses.models import BackgroundRun, Conversation, ConversationItem, StoredResponse
from tests.alerts.scenarios import make_destination, make_rule
from tests.support.cast import PASSWORD, Caller, World, make_key, make_management_key
from tests.support.oauth_client import rows_of_every_table

SECRET = "sk-very-secret-provider-credential"
SAID = "what the customer said"


@pytest.fixture
def operator(db: None) -> Client:
    """A browser in which an operator has signed in."""
    client = Client()
    client.force_login(create_operator(email="op@example.com", password=PASSWORD))
    return client


@pytest.fixture
def rows(world: World) -> dict[type[Row], Row]:
    """One row of each table."""
    ids = {"organization_id": world.acme.id, "project_id": world.project.id, "api_key_id": new_id()}
    key = make_key(world.olivia, world.project).key
    provider = Provider.objects.create(
        id="acme-ai", name="Acme AI", dialect="openai", auth="bearer", base_url="http://x"
    )
    model = Model.objects.create(id="acme-1", name="Acme 1", family="acme", mode="chat")
    start_session(world.dana)
    now = datetime.now(UTC)
    partitions.ensure([now.date()])
    ledger.grant(world.acme.id, Decimal(5), "a gift")
    logged = new_id()
    team = create_team(organization=world.acme, name="Search")
    add_team_member(team=team, member_id=str(world.acme.memberships.get(user=world.dana).pk))
    steps = {"first_token_steps": [0] * 52, "speed_steps": [0] * 48}
    performance = {"starts_at": now, "model": "acme-1", "provider": "acme-ai", "succeeded": 1, **steps}
    made: list[Row] = [
        world.olivia,
        world.acme,
        world.project,
        key,
        provider,
        model,
        *(Membership.objects.all()[:1]),
        *(AuthToken.objects.all()[:1]),
        *(LedgerEntry.objects.all()[:1]),
        *(Transaction.objects.all()[:1]),
        Invoice.objects.create(transaction=Transaction.objects.get(), number=1, issuer={}, recipient={}),
        LedgerEpoch.objects.create(number=1, reason="a backup was restored"),
        Group.objects.create(name="night shift"),
        LogEntry.objects.create(
            user=world.olivia, object_id="acme-1", object_repr="Acme 1", action_flag=CHANGE, change_message="Switch off"
        ),
        IamRule.objects.create(api_key=key, rule_type="deny_models", rule_value={"models": []}),
        ProviderKey.objects.create(
            organization=world.acme, provider="acme-ai", encrypted_token=encrypt_credential(SECRET), last_four="tial"
        ),
        McpServer.objects.create(
            organization=world.acme,
            name="tickets",
            url="https://tools.example.com/mcp",
            encrypted_credentials=encrypt_credentials(Credentials(SECRET)),
        ),
        team,
        team.members.get(),
        create_service_account(organization=world.acme, name="Web shop"),
        Limit.objects.create(
            organization=world.acme, name="daily", scope="organization", counts="requests", window="day", amount=10
        ),
        PlanLimit.objects.create(plan="free", name="tokens a day", counts="tokens", window="day", amount=1_000),
        LimitCounter.objects.create(
            id=new_id(), limit_id=new_id(), organization_id=world.acme.id, starts_at=now, is_money=False, used=1
        ),
        LimitCharge.objects.create(reference=new_id(), organization_id=world.acme.id, counted=[]),
        LogSink.objects.create(
            organization=world.acme,
            name="archive",
            kind="webhook",
            url="https://logs.example.com/hook",
            encrypted_credentials=encrypt_sink_credentials(WebhookSecret(SECRET)),
        ),
        WaitingRow.objects.create(sink_id=new_id(), log_id=new_id()),
        *alert_rows(world),
        PaymentMethod.objects.create(organization=world.acme, processor_customer_id=SECRET, brand="visa"),
        BillingAccount.objects.create(organization=world.acme, processor_customer_id="cus_1"),
        ProcessorEvent.objects.create(id="evt_1", type="invoice.paid"),
        Discount.objects.create(share=Decimal("0.1")),
        GuardrailConfig.objects.create(organization=world.acme),
        CustomRule.objects.create(organization=world.acme, name="rule", type="custom_regex", config={}),
        Violation.objects.create(
            organization_id=world.acme.id, log_id=new_id(), rule_name="rule", category="pii", matched_content=SAID
        ),
        ModelProvider.objects.create(provider=provider, model=model, model_name="acme-one"),
        PriceChange.objects.create(provider="acme-ai", model="acme-1", old={}, new={"input": "1"}, author="op"),
        ScheduledPriceChange.objects.create(
            provider="acme-ai", model="acme-1", overrides={"input": "1"}, effective_at=now, author="op"
        ),
        OrganizationDeletion.objects.create(
            organization_id=world.acme.id,
            organization_name="Acme",
            actor_type="session",
            actor_email="olivia@example.com",
            previous_status="active",
            balance=1,
            row_counts={"keys.apikey": 1},
            requested_at=now,
            due_at=now,
        ),
        CatalogProposal.objects.create(
            provider="acme-ai", model="acme-1", kind="prices", entry={"offer": {"prices": {"input": "1"}}}, seen_at=now
        ),
        PriceListReading.objects.create(source="litellm=https://lists.example/a.json", read_at=now),
        *(AuditEntry.objects.all()[:1]),
        IdempotentAnswer.objects.create(
            user_id=world.olivia.id,
            route="keys/api",
            key="once",
            fingerprint=b"x",
            status=200,
            sealed_body=encrypt_credential(SECRET),
            created_at=now,
        ),
        RequestLog.objects.create(
            id=logged,
            created_at=time_of(logged),
            duration=1,
            mode="hybrid",
            content=SAID,
            messages=[SAID],
            tools=[SAID],
            custom_headers={"x": SAID},
            **ids,
        ),
        ActivityDay.objects.create(date=now.date(), model="acme-1", provider="acme-ai", **ids),
        ActivityDelta.objects.create(date=now.date(), model="acme-1", provider="acme-ai", **ids),
        RefusedHour.objects.create(
            organization_id=world.acme.id, api_key_id=new_id(), hour=now, status=402, code="x", count=1, last_at=now
        ),
        TrafficSlot.objects.create(starts_at=now, minutes=60, aspect="model", name="acme-1"),
        TrafficDelta.objects.create(starts_at=now, aspect="model", name="acme-1"),
        PerformanceSlot.objects.create(minutes=60, **performance),
        PerformanceDelta.objects.create(**performance),
        LogRetention.objects.create(organization=world.acme, days=30),
        SavedView.objects.create(organization=world.acme, created_by=world.olivia, name="Errors", query="range=24h"),
        invite(email="nina@example.com", organization=world.acme),
        make_management_key(world.olivia, world.acme, "read").key,
        Passkey.objects.create(user=world.olivia, name="laptop", credential_id=b"id", public_key=SECRET.encode()),
        TwoFactor.objects.create(
            user=world.olivia, sealed_secret=encrypt_credential(SECRET), recovery_digests=[SECRET]
        ),
        *stored_state(world),
        *batch_rows(world),
        *rows_of_every_table(world.dana, world.project),
        *books(now),
    ]
    compared = Reconciliation.objects.create(compared=1, counts={"amount": 1})
    found = compared.differences.create(kind=Difference.Kind.AMOUNT, subject_id=world.acme.id)
    return {type(row): row for row in (*made, compared, found)}


def books(now: datetime) -> list[Row]:
    """Make the rows of money in flight and of a provider's bill."""
    reading = BillReading.objects.create(provider="acme-ai", origin="api", lines=1)
    compared = BillComparison.objects.create(
        provider="acme-ai", day=now.date(), compared_at=now, logged_cost=0, difference=1, counts={"price": 1}
    )
    period = {"starts_at": now, "ends_at": now}
    amounts = ("received", "used", "batches", "deleted", "credits", "held", "answered", "available")
    return [
        reading,
        BillLine.objects.create(reading=reading, provider="acme-ai", source="usage", model="acme-1", **period),
        compared,
        BillDifference.objects.create(comparison=compared, cause="price", billed="1 USD", logged="nothing", **period),
        ClearingAccount.objects.create(name="held", bound=60, read_at=now, oldest_at=now, items=1),
        BalanceSheet.objects.create(**dict.fromkeys((*amounts, "ledger_difference", "holds_difference"), 0)),
    ]


def alert_rows(world: World) -> list[Row]:
    """Make the rows of an alert."""
    rule = make_rule(world, "payment_failed")
    destination = make_destination(world, "slack", f"https://hooks.example.com/services/{SECRET}/0123")
    alert = Alert.objects.create(
        organization=world.acme, rule=rule, kind=rule.kind, title="A payment failed", fired_at=timezone.now()
    )
    return [
        rule,
        destination,
        alert,
        AlertDelivery.objects.create(alert=alert, destination=destination, phase="fired"),
        AlertReader.objects.create(membership=Membership.objects.all()[0]),
        AlertWatch.objects.get(organization=world.acme),
    ]


def stored_state(world: World) -> list[Row]:
    """Return a row of each table of stored responses."""
    now = datetime.now(UTC)
    owners = {"organization_id": world.acme.id, "project_id": new_id()}
    ids = {**owners, "expires_at": now}
    response = StoredResponse.objects.create(
        id="resp_1",
        created_at=now,
        api_key_id=new_id(),
        status="queued",
        sealed_input=SECRET,
        sealed_response=SECRET,
        item_ids=[SAID],
        size=1,
        context_size=1,
        **ids,
    )
    conversation = Conversation.objects.create(id="conv_1", created_at=now, sealed_metadata=SECRET, size=1, **ids)
    return [
        response,
        BackgroundRun.objects.create(
            response=response, log_id=new_id(), sealed_request=SECRET, lease_owner="worker-1", lease_until=now
        ),
        conversation,
        ConversationItem.objects.create(
            conversation=conversation, position=0, item_id="msg_1", sealed_item=SECRET, size=1, **ids
        ),
    ]


def batch_rows(world: World) -> list[Row]:
    """Return a file and a batch, with a part of each."""
    now = datetime.now(UTC)
    owners = {"organization_id": world.acme.id, "project_id": new_id()}
    file = StoredFile.objects.create(
        id="file-1", created_at=now, expires_at=now, purpose="batch", sealed_name=SECRET, size=1, **owners
    )
    batch = Batch.objects.create(
        id="batch_1",
        format="openai",
        api_key_id=new_id(),
        endpoint="/v1/chat/completions",
        status="in_progress",
        created_at=now,
        expires_at=now,
        kept_until=now,
        paused_until=now,
        input_file_id="file-1",
        sealed_headers=SECRET,
        sealed_metadata=SECRET,
        sealed_errors=SECRET,
        **owners,
    )
    return [
        file,
        FileChunk.objects.create(file=file, position=0, sealed_content=SECRET),
        Upload.objects.create(
            id="upload_1",
            created_at=now,
            expires_at=now,
            purpose="batch",
            size=1,
            sealed_name=SECRET,
            file_id="file-1",
            **owners,
        ),
        batch,
        BatchLine.objects.create(
            batch=batch,
            position=0,
            sealed_request=SECRET,
            sealed_result=SECRET,
            sealed_native=SECRET,
            lease_owner="w",
            lease_until=now,
        ),
        NativeJob.objects.create(
            batch=batch, format="openai", provider_id="p", model_name="m", created_at=now, next_look_at=now
        ),
    ]


def page(row: Row | type[Row], name: str, *arguments: Any) -> str:
    """Return the address of a page of the row's table."""
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_{name}", args=arguments)


def ours() -> list[type[Row]]:
    """Return the tables that are this product's, and those of its packages that operators need."""
    own = [model for model in apps.get_models() if model.__module__.startswith("apps.")]
    return [*own, Group, LogEntry, AuthToken]


class TestEveryTable:
    def test_is_registered(self) -> None:
        assert [model for model in ours() if not admin.site.is_registered(model)] == []

    def test_has_pages_that_open_and_show_no_secret(
        self, operator: Client, rows: dict[type[Row], Row], world: World
    ) -> None:
        assert set(rows) == set(ours())
        digest = bytes(ApiKey.objects.exclude(last_four="").get().digest).hex()
        secrets = (SECRET, SAID, PASSWORD, start_session(world.dana), digest)
        for model, row in rows.items():
            for path in (page(model, "changelist"), page(model, "change", row.pk), page(model, "history", row.pk)):
                response = operator.get(path)
                assert response.status_code == 200, path
                text = response.content.decode()
                for secret in secrets:
                    assert secret not in text, path

    def test_can_be_searched(self, operator: Client, rows: dict[type[Row], Row]) -> None:
        for model in ours():
            for words, status in (("acme", 200), (str(new_id()), 200), ("100%_\\", 200), ("nul\0", 400)):
                response = operator.get(page(model, "changelist"), {"q": words})
                assert response.status_code == status, (model, words)

    def test_the_app_in_its_breadcrumbs_leads_to_the_dashboard(
        self, operator: Client, rows: dict[type[Row], Row]
    ) -> None:
        for model in ours():
            address = f"/admin/{model._meta.app_label}/"
            assert f'href="{address}"' in operator.get(page(model, "changelist")).content.decode()
            led = operator.get(address)
            assert (led.status_code, led.headers["Location"]) == (302, "/admin/"), model
        assert Client().get("/admin/logs/").headers["Location"] == "/admin/login/?next=/admin/logs/"

    @pytest.mark.long
    def test_opens_by_each_of_its_filters_orders_and_counts(self, operator: Client, rows: dict[type[Row], Row]) -> None:
        followed = 0
        for model in ours():
            lists, links, columns = page(model, "changelist"), defaultdict[str, list[str]](list), set[str]()
            for link in sorted(set(re.findall(r'href="\?([^"]+)"', operator.get(lists).content.decode()))):
                query = dict(parse_qsl(unescape(link)))
                columns.update(re.findall(r"\d+", query.pop("o", "")))
                links[" ".join(query)].append(unescape(link))
            # Two of each filter, and all columns at once, both ways.
            orders = [f"o={sign}{f'.{sign}'.join(sorted(columns))}" for sign in ("", "-") if columns]
            for link in [*orders, *(one for same in links.values() for one in same[:2])]:
                assert operator.get(f"{lists}?{link}").status_code == 200, (model, link)
                followed += 1
        assert followed > 150

    def test_a_form_opens_for_what_no_row_can_be(self, operator: Client, rows: dict[type[Row], Row]) -> None:
        for wrong, status in (("x", 200), ("\0", 400), ("{}", 200), (str(new_id()), 200)):
            opened = operator.get(page(Membership, "add"), {"organization": wrong})
            sent = operator.post(page(Membership, "add"), {"organization": wrong, "user": wrong, "role": "owner"})
            assert (opened.status_code, sent.status_code) == (status, 200), wrong
        chosen = operator.get(page(Membership, "add"), {"organization": rows[Organization].pk}).content.decode()
        assert f'<option value="{rows[Organization].pk}" selected' in chosen

    @pytest.mark.parametrize("number", ["1e400", "NaN", "-Infinity", '{"a": [1e999]}'])
    def test_a_number_that_no_store_keeps_is_refused(
        self, operator: Client, rows: dict[type[Row], Row], number: str
    ) -> None:
        answer = operator.post(page(Model, "add"), {"id": "acme-2", "facts": number})
        assert (answer.status_code, "Numbers must be finite." in answer.content.decode()) == (200, True)
        assert not Model.objects.filter(id="acme-2").exists()

    def test_is_counted_by_its_filters_unless_it_is_long(self, operator: Client, rows: dict[type[Row], Row]) -> None:
        counted = operator.get(page(ModelProvider, "changelist"), {"_facets": "True"}).content.decode()
        assert "Unpriced (1)" in " ".join(counted.split())
        for model in (RequestLog, Violation, LedgerEntry):
            assert "_facets" not in operator.get(page(model, "changelist")).content.decode(), model

    @pytest.mark.parametrize(
        "model",
        [
            *(StoredResponse, BackgroundRun, Conversation, ConversationItem, StoredFile, FileChunk),
            *(Batch, BatchLine, NativeJob),
        ],
    )
    def test_stored_state_is_found_by_its_own_id_and_by_its_owner(
        self, operator: Client, rows: dict[type[Row], Row], world: World, model: type[Row]
    ) -> None:
        others = {ConversationItem: "msg_1", FileChunk: "file-1", BatchLine: "batch_1", NativeJob: "batch_1"}
        own = others.get(model, str(rows[model].pk))
        for words, count in ((own, 1), (str(world.acme.id), 1), ("resp_other", 0), (str(new_id()), 0)):
            assert len(operator.get(page(model, "changelist"), {"q": words}).context["cl"].result_list) == count

    def test_is_closed_to_everyone_else(self, world: World) -> None:
        visitor, member = Client(), Client()
        member.force_login(world.olivia)
        for model in ours():
            for client in (visitor, member):
                response = client.get(page(model, "changelist"))
                assert response.status_code == 302
                assert response["Location"].startswith("/admin/login/")


class TestWhatMayBeDone:
    @pytest.mark.parametrize(
        "model", [LedgerEntry, Transaction, PaymentMethod, RequestLog, ActivityDay, ActivityDelta, Violation]
    )
    def test_records_cannot_be_made_changed_or_deleted(
        self, operator: Client, rows: dict[type[Row], Row], model: type[Row]
    ) -> None:
        row = rows[model]
        assert operator.get(page(model, "add")).status_code == 403
        assert operator.post(page(model, "change", row.pk), {}).status_code == 403
        assert operator.post(page(model, "delete", row.pk), {"post": "yes"}).status_code == 403
        operator.post(
            page(model, "changelist"), {"action": "delete_selected", "_selected_action": row.pk, "post": "yes"}
        )
        assert model._default_manager.filter(pk=row.pk).exists()

    @pytest.mark.parametrize("model", [User, Organization, Project, ApiKey, ProviderKey, McpServer, LogSink])
    def test_what_others_speak_of_cannot_be_deleted(
        self, operator: Client, rows: dict[type[Row], Row], model: type[Row]
    ) -> None:
        row = rows[model]
        assert operator.post(page(model, "delete", row.pk), {"post": "yes"}).status_code == 403
        assert model._default_manager.filter(pk=row.pk).exists()

    @pytest.mark.parametrize("model", [ApiKey, ProviderKey, McpServer, LogSink])
    def test_secrets_are_not_made_here(self, operator: Client, model: type[Row]) -> None:
        assert operator.get(page(model, "add")).status_code == 403

    def test_money_cannot_be_written(self, operator: Client, rows: dict[type[Row], Row], world: World) -> None:
        form = operator.get(page(Organization, "change", world.acme.pk)).context["adminform"].form
        data = {name: value for name, value in form.initial.items() if value is not None and name in form.fields}
        response = operator.post(
            page(Organization, "change", world.acme.pk),
            {**data, "billing_company": "Acme Inc", "plan": "pro", "credits": "1000", "referral_earnings": "9"},
        )
        assert response.status_code == 302, response.context["errors"]
        world.acme.refresh_from_db()
        assert (world.acme.billing_company, world.acme.plan) == ("Acme Inc", Plan.FREE)
        assert (world.acme.credits, world.acme.referral_earnings) == (Decimal(5), Decimal(0))

    def test_a_change_makes_policies_stale(
        self, operator: Client, rows: dict[type[Row], Row], world: World, django_capture_on_commit_callbacks: Any
    ) -> None:
        scope = generation.organization_scope(world.acme.id)
        rule, before = rows[IamRule], generation.read_generation_token(scope)
        with django_capture_on_commit_callbacks(execute=True):
            operator.post(
                page(IamRule, "changelist"),
                {"action": "delete_selected", "_selected_action": rule.pk, "post": "yes"},
            )
        assert not IamRule.objects.exists()
        assert generation.read_generation_token(scope) != before

    def test_the_facts_of_a_file_are_the_files(self, operator: Client, rows: dict[type[Row], Row]) -> None:
        Provider.objects.update(file_owned=True)
        fields = operator.get(page(Provider, "change", "acme-ai")).context["adminform"].form.fields
        assert set(fields) == {"priority"}
        assert operator.post(page(Provider, "delete", "acme-ai"), {"post": "yes"}).status_code == 403
        Provider.objects.update(file_owned=False)
        assert operator.get(page(Provider, "delete", "acme-ai")).status_code == 200


class TestPeople:
    def test_an_operator_signs_in_with_the_address_in_any_case(self, db: None) -> None:
        create_operator(email="op@example.com", password=PASSWORD)
        response = Client().post("/admin/login/?next=/admin/", {"username": "OP@example.com", "password": PASSWORD})
        assert (response.status_code, response["Location"]) == (302, "/admin/")

    def test_a_member_does_not(self, world: World) -> None:
        client = Client()
        response = client.post("/admin/login/", {"username": world.olivia.email, "password": PASSWORD})
        assert response.status_code == 200
        assert "_auth_user_id" not in client.session

    def test_tries_are_throttled(self, db: None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            attempt_rate_limiter, "SIGN_IN_PER_ACCOUNT", attempt_rate_limiter.AttemptLimit("sign-in:account", 1)
        )
        create_operator(email="op@example.com", password=PASSWORD)
        client = Client()
        client.post("/admin/login/", {"username": "op@example.com", "password": "wrong"})
        response = client.post("/admin/login/", {"username": "op@example.com", "password": PASSWORD})
        assert b"Too many attempts" in response.content
        assert "_auth_user_id" not in client.session

    def test_a_user_is_added(self, operator: Client) -> None:
        response = operator.post(
            page(User, "add"),
            {"email": "New@Example.com", "name": "New", "usable_password": "true", "password1": PASSWORD}
            | {"password2": PASSWORD},
        )
        assert response.status_code == 302, response.context["errors"]
        assert User.objects.get(name="New").check_password(PASSWORD)
        assert User.objects.get(name="New").email == "new@example.com"

    def test_a_new_password_ends_the_sessions_of_the_old(self, operator: Client, world: World) -> None:
        session = start_session(world.dana)
        path = reverse("admin:auth_user_password_change", args=[world.dana.pk])
        assert operator.get(path).status_code == 200
        new = "another walk by the sea"
        response = operator.post(path, {"usable_password": "true", "password1": new, "password2": new})
        assert response.status_code == 302, response.context["errors"]
        world.dana.refresh_from_db()
        assert world.dana.check_password(new)
        assert Caller(session).get("/auth/get-session").status_code == 401

    def test_a_session_can_be_ended(self, operator: Client, world: World) -> None:
        token = start_session(world.dana)
        [session] = AuthToken.objects.all()
        assert operator.post(page(AuthToken, "delete", session.pk), {"post": "yes"}).status_code == 302
        assert Caller(token).get("/auth/get-session").status_code == 401


class TestLongTables:
    def test_are_searched_by_exact_ids_alone(self, operator: Client, rows: dict[type[Row], Row], world: World) -> None:
        log = rows[RequestLog]
        for words, found in [
            (str(log.pk), [log.pk]),
            (str(world.project.id), [log.pk]),
            (f" {world.acme.id} ", [log.pk]),
            (str(new_id()), []),
            ("acme-1", []),
        ]:
            response = operator.get(page(RequestLog, "changelist"), {"q": words})
            assert [row.pk for row in response.context["cl"].result_list] == found

    def test_are_never_counted_to_the_end(self, operator: Client, rows: dict[type[Row], Row]) -> None:
        with CaptureQueriesContext(connection) as captured:
            operator.get(page(RequestLog, "changelist"))
        counts = [query["sql"] for query in captured if "COUNT(" in query["sql"] and "request_log" in query["sql"]]
        assert len(counts) == 1
        assert "LIMIT 1001" in counts[0]
