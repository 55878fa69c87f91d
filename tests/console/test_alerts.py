"""Alerts in the console: the bell, the list, read and unread, rules, destinations, and each visitor's e-mails."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.utils import timezone

from apps.alerts.evaluation import watch
from apps.alerts.messages import Credentials, IncomingWebhook
from apps.alerts.models import Alert, AlertDestination, AlertReader, AlertRule
from apps.destinations.credentials import decrypt_credentials
from tests.alerts.scenarios import ROUTING_KEY, fire, make_destination, make_rule
from tests.log_sinks.sinks import make_sink
from tests.support.cast import World
from tests.support.console_client import Visitor, page, words
from tests.support.sink_receiver import Receiver, _receiver, receiver

__all__ = ["_receiver", "receiver"]
SLACK = "https://93.184.215.14/services/T000/B000/XXXX"


def switch_off(world: World, *names: str) -> None:
    """Fire an alert about each of some new sinks."""
    make_rule(world, "integration_off")
    for name in names:
        make_sink(world, "webhook", "https://example.com/", name=name, status="inactive")
    fire(world)


def test_the_bell_counts_what_the_visitor_has_not_read(world: World) -> None:
    adam = Visitor(world.adam)
    assert "unread" not in words(adam.open(page(world.acme)))
    switch_off(world, "first", "<script>second</script>")
    assert "Alerts 2 unread" in words(adam.open(page(world.acme, "keys")))
    shown = adam.open(page(world.acme, "alerts"))
    assert words(shown).count(" new ") == 2
    assert "The log sink <script>second</script> is switched off" in words(shown)
    assert "<script>second" not in shown.content.decode()
    # Not "Open", which is a state of alerts.
    links = re.findall(rf'<a href="/app/o/{world.acme.id}/log-sinks">([^<]*)<span', shown.content.decode())
    assert links == ["Show", "Show"]
    newest = Alert.objects.order_by("-id")[0]
    assert adam.send(page(world.acme, "alerts/read"), {"alertId": str(newest.id)}).status_code == 303
    assert "unread" not in words(adam.open(page(world.acme, "alerts")))
    assert "Alerts 2 unread" in words(Visitor(world.olivia).open(page(world.acme)))
    # Developers have no alerts, and no bell.
    assert 'class="bell"' not in Visitor(world.dana).open(page(world.acme)).content.decode()


def test_more_than_a_page_of_alerts_is_paged_and_counted_in_the_bell(world: World) -> None:
    rule = make_rule(world, "payment_failed")
    for number in range(101):
        Alert.objects.create(
            organization=world.acme,
            rule=rule,
            kind=rule.kind,
            subject=str(number),
            title=f"Payment {number:03}",
            fired_at=rule.created_at,
        )
    AlertReader.objects.create(membership=world.acme.memberships.get(user=world.adam))
    adam = Visitor(world.adam)
    first = adam.open(page(world.acme, "alerts"))
    assert ("Payment 100" in words(first), "Payment 050" in words(first), "99+ unread" in words(first)) == (
        True,
        False,
        True,
    )
    [cursor] = [part.split('"')[0] for part in first.content.decode().split("?cursor=")[1:]]
    second = adam.open(page(world.acme, "alerts"), cursor=cursor)
    assert ("Payment 050" in words(second), "Newest" in words(second)) == (True, True)
    assert adam.open(page(world.acme, "alerts"), cursor="nonsense").status_code == 400


def test_a_visitor_switches_emails_for_themselves(world: World) -> None:
    adam = Visitor(world.adam)
    assert "are on ." in words(adam.open(page(world.acme, "alerts")))
    assert adam.send(page(world.acme, "alerts/emails"), {"byEmail": "false"}).status_code == 303
    assert "E-mails about alerts are off for you." in words(adam.open(page(world.acme, "alerts")))
    assert list(AlertReader.objects.values_list("membership__user", "by_email")) == [(world.adam.id, False)]
    adam.send(page(world.acme, "alerts/emails"), {"byEmail": "maybe"})
    assert AlertReader.objects.get().by_email is False


def test_a_visitor_sets_quiet_hours(world: World) -> None:
    adam, path = Visitor(world.adam), page(world.acme, "alerts/emails")
    hours = {"quietFrom": "22:00", "quietUntil": "07:00", "timeZone": "Europe/Berlin"}
    assert adam.send(path, hours).status_code == 303
    shown = adam.open(page(world.acme, "alerts"))
    assert "Your quiet hours were saved." in words(shown)
    assert 'value="22:00"' in shown.content.decode()
    adam.send(path, {**hours, "quietFrom": "late"})
    assert "Must be a time such as 22:00" in words(adam.open(page(world.acme, "alerts")))
    adam.send(path, {"quietFrom": "", "quietUntil": "", "timeZone": "UTC"})
    reader = AlertReader.objects.get()
    assert (reader.quiet_from, reader.quiet_until, reader.by_email) == (None, None, True)


def test_a_rule_goes_where_its_form_says(world: World, rule_fields: dict[str, Any]) -> None:
    chosen = make_destination(world, "slack", "https://93.184.215.14/x", name="on call")
    adam, path = Visitor(world.adam), page(world.acme, "alert-rules")
    for amount, where in (("25", ""), ("26", "none"), ("27", str(chosen.pk))):
        assert adam.send(path, {**rule_fields, "amount": amount, "where": where}, once=amount).status_code == 303
    found = {one.parameters["amount"]: one.destination_ids for one in AlertRule.objects.filter(kind="balance_low")}
    assert {name: found[name] for name in ("25", "26", "27")} == {"25": None, "26": [], "27": [str(chosen.pk)]}
    assert "Balance below 27 USD E-mail, on call" in words(adam.open(path))


@pytest.fixture
def rule_fields() -> dict[str, Any]:
    """The whole form, as a browser sends it: the fields of other kinds are empty or as they stood."""
    names = ("amount", "days", "percent", "factor", "floor", "milliseconds", "name", "minRequests")
    return {**dict.fromkeys(names, ""), "aspect": "model", "kind": "balance_low"}


def test_a_rule_is_added_once_switched_and_removed(world: World, rule_fields: dict[str, Any]) -> None:
    adam = Visitor(world.adam)
    for _ in range(2):
        answer = adam.send(page(world.acme, "alert-rules"), {**rule_fields, "amount": "25"}, once="one-click")
        assert (answer.status_code, answer["Location"]) == (303, page(world.acme, "alert-rules"))
    shown = words(adam.open(page(world.acme, "alert-rules")))
    assert "The alert rule was added: Balance below 25 USD." in shown
    rule = AlertRule.objects.get(parameters={"amount": "25"})
    adam.send(page(world.acme, f"alert-rules/{rule.id}/switch"), {"status": "inactive"})
    rule.refresh_from_db()
    assert rule.status == "inactive"
    adam.send(page(world.acme, f"alert-rules/{rule.id}/remove"))
    rule.refresh_from_db()
    assert rule.status == "deleted"
    assert "The alert rule was removed: Balance below 25 USD." in words(adam.open(page(world.acme, "alert-rules")))


@pytest.mark.parametrize(
    ("changes", "summary"),
    [
        ({"kind": "limit_share", "percent": "50"}, "50% of a limit used"),
        (
            {"kind": "error_rate", "percent": "5", "aspect": "provider", "minRequests": "50"},
            "Error rate of a provider above 5% in 15 minutes",
        ),
        (
            {"kind": "latency", "milliseconds": "9000", "name": "gpt-5"},
            "p95 latency of a model above 9000 ms in 15 minutes (gpt-5)",
        ),
        ({"kind": "price_change"}, "Price of a model in use changed"),
        (
            {"kind": "daily_spend", "factor": "3", "floor": "10"},
            "Spending of a day above 3 times the usual, and above 10 USD",
        ),
    ],
)
def test_the_form_of_every_kind(
    world: World, rule_fields: dict[str, Any], changes: dict[str, Any], summary: str
) -> None:
    answer = Visitor(world.adam).send(page(world.acme, "alert-rules"), {**rule_fields, **changes})
    assert answer.status_code == 303
    assert summary in {one.summary for one in AlertRule.objects.all()}


def test_a_refused_rule_says_why(world: World, rule_fields: dict[str, Any]) -> None:
    answer = Visitor(world.adam).send(
        page(world.acme, "alert-rules"), {**rule_fields, "kind": "limit_share", "percent": "many"}
    )
    assert (answer.status_code, "Must be a whole number" in words(answer)) == (400, True)
    assert 'value="many"' in answer.content.decode()
    assert not AlertRule.objects.exists()


def test_a_destination_is_added_and_its_address_masked(world: World) -> None:
    adam = Visitor(world.adam)
    fields = {"name": "team", "kind": "slack", "url": SLACK, "secret": "", "routingKey": ""}
    assert adam.send(page(world.acme, "alert-destinations"), fields).status_code == 303
    row = AlertDestination.objects.get()
    assert decrypt_credentials(bytes(row.encrypted_credentials), Credentials) == IncomingWebhook(SLACK)
    shown = adam.open(page(world.acme, "alert-destinations"))
    assert ("https://93.184.215.14/...XXXX" in words(shown), "B000" in shown.content.decode()) == (True, False)
    refused = adam.send(
        page(world.acme, "alert-destinations"), {**fields, "name": "", "kind": "pagerduty", "routingKey": ROUTING_KEY}
    )
    assert (refused.status_code, ROUTING_KEY in refused.content.decode()) == (400, False)


def test_a_test_is_sent_from_the_page(world: World, receiver: Receiver) -> None:
    adam, row = Visitor(world.adam), make_destination(world, "slack", f"{receiver.origin}/services/secret")
    here = page(world.acme, f"alert-destinations/{row.id}")
    adam.send(f"{here}/test")
    assert "The alert destination slack accepted the test." in words(adam.open(page(world.acme, "alert-destinations")))
    receiver.status, receiver.answer = 404, b"no_service"
    adam.send(f"{here}/test")
    shown = words(adam.open(page(world.acme, "alert-destinations")))
    assert "did not accept the test. It answered 404: no_service" in shown
    adam.send(f"{here}/remove")
    row.refresh_from_db()
    assert (row.status, bytes(row.encrypted_credentials)) == ("deleted", b"")


def test_it_is_for_admins_of_the_organization(world: World) -> None:
    switch_off(world, "first")
    rule, row = AlertRule.objects.get(), make_destination(world, "webhook", "https://example.com/")
    alert = Alert.objects.get()
    posts = (f"alert-rules/{rule.id}/remove", f"alert-destinations/{row.id}/test", "alerts/read", "alerts/emails")
    for path in posts:
        assert Visitor(world.dana).send(page(world.acme, path), {"byEmail": "false"}).status_code == 403
        refused = Visitor(world.sam).send(page(world.elsewhere, path), {"alertId": str(alert.id), "byEmail": "maybe"})
        assert refused.status_code in {303, 403, 404}
    for path in ("alerts", "alert-rules", "alert-destinations"):
        assert Visitor(world.dana).open(page(world.acme, path)).status_code == 403
    rule.refresh_from_db()
    assert (rule.status, AlertReader.objects.count()) == ("active", 0)


def test_the_rules_of_a_new_organization_are_shown(world: World) -> None:
    watch(world.acme.id, timezone.now())
    assert "Balance below 5 USD" in words(Visitor(world.adam).open(page(world.acme, "alert-rules")))
