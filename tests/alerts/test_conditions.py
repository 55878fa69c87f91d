"""Each kind of alert from its cause to its messages: once when it fires, and once when it is resolved."""

from __future__ import annotations

import hmac
import json
from base64 import b64decode, b64encode
from datetime import timedelta
from decimal import Decimal
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from django.core import mail
from django.utils import timezone

from apps.alerts import emails, evaluation
from apps.alerts.delivery import deliver
from apps.alerts.kind_names import EVENTS, KindName
from apps.alerts.sentences import SENTENCES
from apps.billing.models import Transaction
from apps.catalog.models import PriceChange
from apps.kernel.pages.languages import find_sentence
from apps.kernel.pages.number_formats import mark_numbers
from apps.keys.models import ApiKey
from apps.limits.applied import apply_rule, describe, rule_of
from apps.limits.models import Limit, LimitCounter
from apps.log_sinks.models import LogSink
from tests.alerts.scenarios import (
    SCENARIOS,
    Scenario,
    add_rule,
    fire,
    make_destination,
    make_rule,
    set_balance,
    spend,
)
from tests.log_sinks.sinks import SECRET, make_sink
from tests.logs.entries import entry, write
from tests.support.cast import World, make_key
from tests.support.console_client import Visitor, page
from tests.support.sink_receiver import Receiver, Taken


def mailbox(folder: Path) -> list[EmailMessage]:
    """Return the e-mails in a folder, oldest first."""
    files = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    texts = [path.read_bytes().partition(b"-" * 79)[0] for path in files]
    return [message_from_bytes(text, policy=policy.default) for text in texts]


def read_signed(taken: Taken) -> dict[str, object]:
    """Return the content of a webhook's message, whose signature is right as Standard Webhooks defines it."""
    signed = b".".join([taken.headers["webhook-id"].encode(), taken.headers["webhook-timestamp"].encode(), taken.body])
    expected = hmac.digest(b64decode(SECRET.removeprefix("whsec_")), signed, "sha256")
    assert taken.headers["webhook-signature"] == f"v1,{b64encode(expected).decode()}"
    assert abs(int(taken.headers["webhook-timestamp"]) - timezone.now().timestamp()) < 300
    content: dict[str, object] = json.loads(taken.body)
    return content


def test_every_kind_has_a_scenario() -> None:
    assert {one.kind for one in SCENARIOS} == set(KindName.values)
    assert {one.kind for one in SCENARIOS if one.end is None} == set(EVENTS)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_a_cause_is_told_once_and_so_is_its_end(
    world: World, receiver: Receiver, scenario: Scenario, settings: Any, tmp_path: Path
) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
    settings.EMAIL_FILE_PATH = str(tmp_path)
    make_rule(world, scenario.kind, **scenario.parameters)
    destination = make_destination(world, "webhook", f"{receiver.origin}/hook")
    assert fire(world) == []
    scenario.begin(world)
    [alert] = fire(world)
    assert fire(world) == [alert]
    assert alert.title.startswith(scenario.title)
    assert find_sentence(alert.title, SENTENCES) is not None
    assert find_sentence(alert.text, SENTENCES) is not None
    assert (alert.resolved_at, alert.kind) == (None, scenario.kind)
    # Read in the mailbox, …
    assert [emails.send_due(timezone.now()) for _ in range(2)] == [1, 0]
    [message] = mailbox(tmp_path)
    assert message["Subject"] == f"Acme: {alert.title}"
    body = message.get_content()
    assert alert.text in body
    assert f"/app/o/{world.acme.id}/{alert.page}" in body
    # … at a webhook, …
    assert [deliver(destination.pk) for _ in range(2)] == [1, 0]
    [taken] = receiver.taken
    content = read_signed(taken)
    assert content["type"] == "alert.fired"
    data = content["data"]
    assert isinstance(data, dict)
    assert {name: data[name] for name in ("id", "kind", "title", "severity", "resolvedAt")} == {
        "id": str(alert.id),
        "kind": scenario.kind,
        "title": alert.title,
        "severity": scenario.severity,
        "resolvedAt": None,
    }
    # … and in the console, whose page of the next step exists.
    adam = Visitor(world.adam)
    assert mark_numbers(alert.title) in adam.open(page(world.acme, "alerts")).content.decode()
    assert adam.open(page(world.acme, alert.page)).status_code == 200
    if scenario.end is None:
        return
    scenario.end(world)
    [resolved] = fire(world)
    assert (resolved.id, resolved.resolved_at is None) == (alert.id, False)
    assert [fire(world), emails.send_due(timezone.now()), deliver(destination.pk)] == [[resolved], 1, 1]
    assert [one["Subject"] for one in mailbox(tmp_path)] == [f"Acme: {alert.title}", f"Acme: Resolved: {alert.title}"]
    second = read_signed(receiver.taken[1])
    assert second["type"] == "alert.resolved"
    assert second["data"]["id"] == str(alert.id)  # type: ignore[index]  # it is an object


def test_a_balance_that_swings_around_its_threshold_alerts_once(world: World) -> None:
    make_rule(world, "balance_low", amount="5")
    spend(make_key(world.olivia, world.project).key, "1")
    for balance in ("4.99", "5.01", "4.9", "5.5"):
        set_balance(world, balance)
        [alert] = fire(world)
        assert alert.resolved_at is None
    set_balance(world, "5.56")
    assert fire(world)[0].resolved_at is not None
    set_balance(world, "4.99")
    assert [one.resolved_at is None for one in fire(world)] == [False, True]


def test_an_organization_that_uses_no_credits_is_not_told_of_its_balance(world: World) -> None:
    make_rule(world, "balance_low", amount="5")
    key = make_key(world.olivia, world.project).key
    spend(key, "1", days=9)
    spend(key, "1", used_mode="api-keys")
    set_balance(world, "0")
    assert fire(world) == []


def test_each_share_of_a_limit_is_an_alert_of_its_own(world: World) -> None:
    make_rule(world, "limit_share", percent=80)
    add_rule(world, "limit_share", percent=100)
    key = make_key(world.olivia, world.project, "Web shop", Decimal(10)).key
    for usage, percents in (("7.9", []), ("8", [80]), ("9.99", [80]), ("10.5", [80, 105])):
        ApiKey.objects.filter(pk=key.pk).update(usage=Decimal(usage))
        found = [one for one in fire(world) if one.resolved_at is None]
        assert [int(Decimal(one.figures["percent"])) for one in found] == percents
    ApiKey.objects.filter(pk=key.pk).update(status="deleted")
    assert [one for one in fire(world) if one.resolved_at is None] == []


@pytest.mark.parametrize(
    ("counts", "amount", "steps", "text"),
    [
        ("usd", "20", ("15.99", "16.5"), "$16.50 of $20.00 is used"),
        ("output_tokens", "2000", ("1599", "1700"), "1,700 of 2,000 output tokens are used"),
    ],
)
def test_a_limit_of_a_project_is_told_with_its_unit(
    world: World, counts: str, amount: str, steps: tuple[str, str], text: str
) -> None:
    make_rule(world, "limit_share", percent=80)
    limit = Limit.objects.create(
        organization=world.acme,
        project=world.project,
        name="Monthly",
        scope="project",
        counts=counts,
        window="month",
        amount=Decimal(amount),
        action="warn",
    )
    counter = apply_rule(rule_of(limit), "", timezone.now().timestamp())
    row = LimitCounter.objects.create(
        id=counter.counter_id,
        limit_id=limit.id,
        organization_id=world.acme.id,
        starts_at=timezone.now(),
        is_money=counts == "usd",
        used=Decimal(steps[0]),
    )
    assert fire(world) == []
    LimitCounter.objects.filter(pk=row.pk).update(used=Decimal(steps[1]))
    [alert] = fire(world)
    assert alert.title == f"80% of the {describe(counter)}, is used"
    assert alert.text == f"{text}. Raise the limit, or find out what spends it."
    assert alert.subject == f"limit:{limit.id}"


def test_few_requests_are_no_error_rate(world: World) -> None:
    make_rule(world, "error_rate", percent=50, aspect="model", min_requests=20, name="")
    key = make_key(world.olivia, world.project).key
    write(*(entry(key, has_error=True) for _ in range(19)))
    assert fire(world) == []
    write(entry(key, has_error=True, used_model="another"))
    assert fire(world) == []
    write(entry(key, has_error=True))
    [alert] = fire(world)
    assert (alert.subject, alert.figures) == ("gpt-5", {"requests": 20, "errors": 20, "percent": "100.00"})
    # A quarter of an hour later none of them counts.
    assert fire(world, timezone.now() + timedelta(minutes=16))[0].resolved_at is not None


def test_another_organizations_money_keys_and_models_are_not_told(world: World) -> None:
    for kind, parameters in (("limit_share", {"percent": 50}), ("price_change", {}), ("integration_off", {})):
        make_rule(world, kind, **parameters)
        key = make_key(world.sam, world.elsewhere_project, "Sam's", Decimal(1)).key
        ApiKey.objects.filter(pk=key.pk).update(usage=Decimal(1))
        spend(key, "1")
        PriceChange.objects.create(provider="openai", model="gpt-5", old={"input": "1"}, new={}, author="x")
        sink = make_sink(world, "webhook", "https://example.com/", name=kind, status="inactive")
        LogSink.objects.filter(pk=sink.pk).update(organization=world.elsewhere)
        assert fire(world) == []


def test_a_changed_price_is_told_in_words_with_its_unit(world: World) -> None:
    make_rule(world, "price_change")
    spend(make_key(world.olivia, world.project).key, "1")
    PriceChange.objects.create(
        provider="openai",
        model="gpt-5",
        old={"cache_write": "1", "web_search": "0.01"},
        new={"web_search": "0.014", "tiers": [{"above_input_tokens": 200_000, "input": "2.5"}]},
        author="x",
    )
    [alert] = fire(world)
    assert alert.text.partition(". The organization")[0] == (
        "Prices in USD: Web search: 0.01 each → 0.014 each; Input above 200,000 tokens: no price → 2.5; "
        "Cache write: 1 → no price"
    )


def test_what_was_off_failed_or_changed_before_the_rule_is_not_told(world: World) -> None:
    make_sink(world, "webhook", "https://example.com/", status="inactive")
    spend(make_key(world.olivia, world.project).key, "1")
    PriceChange.objects.create(provider="openai", model="gpt-5", old={"input": "1"}, new={}, author="x")
    Transaction.objects.create(organization=world.acme, type="credit_topup", amount=5, status="failed")
    for kind in ("integration_off", "price_change", "payment_failed"):
        make_rule(world, kind)
        assert fire(world) == []


def test_owners_get_one_email_about_a_sink_that_failed(world: World) -> None:
    """The log sinks have an e-mail of their own for owners; admins get the alert."""
    make_rule(world, "integration_off")
    sink = make_sink(world, "webhook", "https://example.com/", name="archive")
    LogSink.objects.filter(pk=sink.pk).update(
        status="failed", last_error="It answered 500", last_error_at=timezone.now()
    )
    [alert] = fire(world)
    assert alert.text.startswith("It failed for three days. Last error: It answered 500.")
    assert emails.send_due(timezone.now()) == 1
    assert mail.outbox[0].bcc == [world.adam.email]


def test_a_condition_that_fails_silences_no_other_and_resolves_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_rule(world, "balance_low", amount="5")
    spend(make_key(world.olivia, world.project).key, "1")
    set_balance(world, "1")
    [alert] = fire(world)

    def fail(*_: object) -> None:
        raise ArithmeticError

    with monkeypatch.context() as patch:
        patch.setitem(evaluation.CONDITIONS, KindName.BALANCE_LOW, fail)
        add_rule(world, "integration_off")
        make_sink(world, "webhook", "https://example.com/", status="inactive")
        found = fire(world)
    assert [(one.kind, one.resolved_at) for one in found] == [("balance_low", None), ("integration_off", None)]
    assert found[0] == alert
