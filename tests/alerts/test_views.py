"""`/alerts`: the list, read and unread, choices, rules and destinations; the rotation of their keys, and erasure."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from apps.alerts import actions
from apps.alerts.evaluation import watch
from apps.alerts.hooks import rotate
from apps.alerts.messages import Credentials, IncomingWebhook, RoutingKey
from apps.alerts.models import Alert, AlertDelivery, AlertDestination, AlertReader, AlertRule, AlertWatch
from apps.destinations import actions as destinations
from apps.destinations.credentials import decrypt_credentials
from apps.organizations.actions import delete_organization
from apps.organizations.models import AuditEntry
from apps.organizations.tasks import erase
from tests.alerts.scenarios import ROUTING_KEY, fire, make_destination, make_rule
from tests.log_sinks.sinks import SECRET, make_sink
from tests.support.cast import Caller, World, make_management_key, signed_in
from tests.support.sink_receiver import Receiver

SLACK = "https://93.184.215.14/services/T000/B000/XXXX"


@pytest.fixture
def adam(world: World) -> Caller:
    return signed_in(world.adam)


def switch_off(world: World, *names: str) -> list[Alert]:
    """Fire an alert about each of some new sinks."""
    make_rule(world, "integration_off")
    for name in names:
        make_sink(world, "webhook", "https://example.com/", name=name, status="inactive")
        fire(world)
    return list(Alert.objects.order_by("-id"))


def test_alerts_are_listed_and_read_by_each_member(world: World, adam: Caller) -> None:
    newest, oldest = switch_off(world, "first", "second")
    here = {"organizationId": str(world.acme.id)}
    answer = adam.get("/alerts", **here, limit="1").json()
    [shown] = answer["alerts"]
    assert {name: shown[name] for name in ("id", "kind", "title", "page", "figures", "resolvedAt")} == {
        "id": str(newest.id),
        "kind": "integration_off",
        "title": "The log sink second is switched off",
        "page": "log-sinks",
        "figures": {"status": "inactive"},
        "resolvedAt": None,
    }
    assert (answer["unread"], answer["pagination"]["hasMore"]) == (2, True)
    following = adam.get("/alerts", **here, limit="1", cursor=answer["pagination"]["nextCursor"]).json()
    assert [one["id"] for one in following["alerts"]] == [str(oldest.id)]
    assert adam.post("/alerts/read", {**here, "alertId": str(oldest.id)}).json() == {"unread": 1}
    assert adam.post("/alerts/read", here).json() == {"unread": 0}
    # An older one marks nothing as unread again.
    assert adam.post("/alerts/read", {**here, "alertId": str(oldest.id)}).json() == {"unread": 0}
    assert signed_in(world.olivia).get("/alerts", **here).json()["unread"] == 2
    Alert.objects.filter(pk=oldest.pk).update(resolved_at=timezone.now())
    for status, ids in (("open", [newest.id]), ("resolved", [oldest.id])):
        found = adam.get("/alerts", **here, status=status).json()["alerts"]
        assert [one["id"] for one in found] == [str(one) for one in ids]


def test_alerts_of_another_organization_are_not_found(world: World, adam: Caller) -> None:
    [alert] = switch_off(world, "first")
    sam = signed_in(world.sam)
    assert sam.get("/alerts", organizationId=str(world.acme.id)).status_code == 403
    refused = sam.post("/alerts/read", {"organizationId": str(world.elsewhere.id), "alertId": str(alert.id)})
    assert (refused.status_code, AlertReader.objects.count()) == (404, 0)


def test_a_member_chooses_emails_for_one_organization(world: World, adam: Caller) -> None:
    here = {"organizationId": str(world.acme.id)}
    assert adam.get("/alerts/preferences", **here).json()["preferences"]["byEmail"] is True
    assert (
        adam.send("PATCH", "/alerts/preferences", {**here, "byEmail": False}).json()["preferences"]["byEmail"] is False
    )
    assert [one.membership.user for one in AlertReader.objects.all()] == [world.adam]
    [noted] = AuditEntry.objects.filter(action="alert_emails.update")
    assert noted.details == {"changes": {"by_email": {"from": True, "to": False}}}
    hours = {"quietFrom": "22:00", "quietUntil": "07:30", "timeZone": "Europe/Berlin"}
    shown = adam.send("PATCH", "/alerts/preferences", {**here, **hours}).json()["preferences"]
    assert {name: shown[name] for name in (*hours, "byEmail")} == {**hours, "byEmail": False}
    for wrong, path in (
        ({}, "byEmail"),
        ({"quietFrom": "22:00"}, "quietUntil"),
        ({"quietFrom": "22:00", "quietUntil": "22:00"}, "quietUntil"),
        ({"quietFrom": "22:00", "quietUntil": None}, "quietUntil"),
        ({"quietFrom": "24:00", "quietUntil": "07:00"}, "quietFrom"),
        ({"timeZone": "Mars/Base"}, "timeZone"),
    ):
        refused = adam.send("PATCH", "/alerts/preferences", {**here, **wrong})
        assert (refused.status_code, refused.json()["issues"][0]["path"]) == (400, path)
    ended = adam.send("PATCH", "/alerts/preferences", {**here, "quietFrom": None, "quietUntil": None})
    assert ended.json()["preferences"]["quietFrom"] is None
    key = Caller(make_management_key(world.olivia, world.acme, "read", "settings").token)
    assert key.send("PATCH", "/alerts/preferences", {**here, "byEmail": True}).status_code == 403


def test_rules_are_added_switched_and_deleted(world: World, adam: Caller) -> None:
    here = {"organizationId": str(world.acme.id)}
    watch(world.acme.id, timezone.now())
    assert len(adam.get("/alerts/rules", **here).json()["rules"]) == 5
    body = {**here, "kind": "error_rate", "percent": 20, "aspect": "provider"}
    rule = adam.post("/alerts/rules", body).json()["rule"]
    assert rule["destinationIds"] is None
    assert (rule["parameters"], rule["summary"], rule["status"]) == (
        {"percent": 20, "aspect": "provider", "minRequests": 20, "name": ""},
        "Error rate of a provider above 20% in 15 minutes",
        "active",
    )
    again = adam.post("/alerts/rules", {**here, "kind": "error_rate", **rule["parameters"]})
    assert (again.status_code, AlertRule.objects.count()) == (400, 6)
    assert again.json()["issues"][0]["message"] == "Another alert rule has this kind and these parameters"
    path = f"/alerts/rules/{rule['id']}"
    assert adam.send("PATCH", path, {"status": "inactive"}).json()["rule"]["status"] == "inactive"
    assert adam.send("DELETE", path, {}).status_code == 200
    assert len(adam.get("/alerts/rules", **here).json()["rules"]) == 5
    found = AuditEntry.objects.filter(resource_type="alert_rule").order_by("id")
    assert list(found.values_list("action", flat=True)) == [
        "alert_rule.create",
        "alert_rule.update",
        "alert_rule.delete",
    ]


def test_a_rule_names_its_destinations(world: World, adam: Caller) -> None:
    chosen, other = (make_destination(world, "slack", SLACK, name=name) for name in ("chosen", "other"))
    foreign = make_destination(world, "slack", SLACK, organization=world.elsewhere)
    make_rule(world, "price_change")
    body = {"organizationId": str(world.acme.id), "kind": "integration_off", "destinationIds": [str(chosen.id)]}
    rule = adam.post("/alerts/rules", body).json()["rule"]
    assert rule["destinationIds"] == [str(chosen.id)]
    make_sink(world, "webhook", "https://example.com/", name="first", status="inactive")
    fire(world)
    told = AlertDelivery.objects.order_by("id").values_list("destination__name", flat=True)
    assert list(told) == [None, "chosen"]
    path = f"/alerts/rules/{rule['id']}"
    for ids, place in (([str(foreign.id)], 0), ([str(other.id), "nonsense"], 1)):
        refused = adam.send("PATCH", path, {"destinationIds": ids})
        issue = {"path": f"destinationIds[{place}]", "message": "Must be the id of an alert destination"}
        assert (refused.status_code, refused.json()["issues"]) == (400, [issue])
    assert adam.send("PATCH", path, {"destinationIds": []}).json()["rule"]["destinationIds"] == []
    make_sink(world, "webhook", "https://example.com/", name="second", status="inactive")
    fire(world)
    assert list(told.all())[2:] == [None]
    adam.send("PATCH", path, {"destinationIds": None})
    make_sink(world, "webhook", "https://example.com/", name="third", status="inactive")
    fire(world)
    assert list(told.all())[3:] == [None, "chosen", "other"]


@pytest.mark.parametrize(
    ("body", "path", "message"),
    [
        ({"kind": "balance_low"}, "amount", "Required"),
        ({"kind": "balance_low", "amount": "0"}, "amount", "Must be more than 0"),
        ({"kind": "balance_low", "amount": 5}, "amount", 'Must be an amount such as "12.50", at least 0'),
        ({"kind": "limit_share", "percent": 101}, "percent", "Must be at most 100"),
        ({"kind": "price_change", "days": 3}, "days", "Not a field of the kind price_change"),
        ({"kind": "error_rate", "percent": 5, "aspect": "key"}, "aspect", "Must be one of: model, provider"),
        ({"kind": "weather"}, "kind", "Must be one of: balance_low, balance_runway, limit_share, daily_spend, "),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(
    world: World, adam: Caller, body: dict[str, Any], path: str, message: str
) -> None:
    answer = adam.post("/alerts/rules", {"organizationId": str(world.acme.id), **body})
    assert answer.status_code == 400
    [issue] = answer.json()["issues"]
    assert (issue["path"], issue["message"].startswith(message)) == (path, True)
    assert not AlertRule.objects.exists()


def test_rules_and_destinations_are_bounded(world: World, adam: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "MAX_RULES", 5)
    monkeypatch.setattr(actions, "MAX_DESTINATIONS", 0)
    here = {"organizationId": str(world.acme.id)}
    for path, body, message in (
        ("/alerts/rules", {"kind": "price_change"}, "Maximum 5 alert rules per organization"),
        (
            "/alerts/destinations",
            {"kind": "slack", "name": "x", "url": SLACK},
            "Maximum 0 alert destinations per organization",
        ),
    ):
        answer = adam.post(path, {**here, **body})
        assert (answer.status_code, answer.json()["message"]) == (400, message)
    assert (AlertRule.objects.exclude(status="deleted").count(), AlertDestination.objects.count()) == (0, 0)


def test_an_incoming_webhooks_address_is_a_secret(world: World, adam: Caller) -> None:
    body = {"organizationId": str(world.acme.id), "kind": "slack", "name": "team", "url": SLACK}
    answer = adam.post("/alerts/destinations", body)
    assert answer.status_code == 200, answer.content
    shown = answer.json()["destination"]
    assert (shown["url"], shown["maskedCredentials"]) == ("https://93.184.215.14/...XXXX",) * 2
    row = AlertDestination.objects.get()
    assert decrypt_credentials(bytes(row.encrypted_credentials), Credentials) == IncomingWebhook(SLACK)
    [noted] = AuditEntry.objects.filter(action="alert_destination.create")
    assert "B000" not in str(noted.details)
    assert adam.send("DELETE", f"/alerts/destinations/{row.id}", {}).status_code == 200
    row.refresh_from_db()
    assert (row.status, bytes(row.encrypted_credentials), row.masked_credentials) == ("deleted", b"", "")


def test_pagerduty_needs_a_key_and_has_an_address(world: World, adam: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []
    monkeypatch.setattr(destinations, "check_url_field", lambda url, *_: checked.append(url))
    body = {"organizationId": str(world.acme.id), "kind": "pagerduty", "name": "on call", "routingKey": ROUTING_KEY}
    row = adam.post("/alerts/destinations", body).json()["destination"]
    assert checked == [row["url"]] == ["https://events.pagerduty.com/v2/enqueue"]
    assert row["maskedCredentials"] == "...RSTU"
    path = f"/alerts/destinations/{row['id']}"
    assert (
        adam.send("PATCH", path, {"routingKey": "ANOTHERKEY", "name": "night"}).json()["destination"]["name"] == "night"
    )
    stored = AlertDestination.objects.get()
    assert decrypt_credentials(bytes(stored.encrypted_credentials), Credentials) == RoutingKey("ANOTHERKEY")
    refused = adam.send("PATCH", path, {"secret": SECRET})
    assert refused.json()["issues"] == [{"path": "secret", "message": "Not a field of the kind pagerduty"}]


@pytest.mark.parametrize(
    ("body", "path", "message"),
    [
        ({"kind": "webhook", "url": SLACK}, "secret", "Required"),
        ({"kind": "webhook", "url": SLACK, "secret": "short"}, "secret", "Must be whsec_ followed by"),
        ({"kind": "slack"}, "url", "Required"),
        ({"kind": "slack", "url": SLACK, "routingKey": "A1"}, "routingKey", "Not a field of the kind slack"),
        ({"kind": "pagerduty", "routingKey": "a b"}, "routingKey", "Must be letters and digits"),
        ({"kind": "slack", "url": "http://127.0.0.1:8080/"}, "url", "Must not lead to a private"),
        ({"kind": "slack", "url": "http://169.254.169.254/"}, "url", "Must not lead to"),
    ],
)
def test_a_destination_that_makes_no_sense_is_refused(
    world: World, adam: Caller, body: dict[str, Any], path: str, message: str
) -> None:
    answer = adam.post("/alerts/destinations", {"organizationId": str(world.acme.id), "name": "x", **body})
    assert answer.status_code == 400
    [issue] = answer.json()["issues"]
    assert (issue["path"], issue["message"].startswith(message)) == (path, True)
    assert not AlertDestination.objects.exists()


def test_a_test_is_sent_and_changes_nothing(world: World, adam: Caller, receiver: Receiver) -> None:
    row = make_destination(world, "pagerduty", f"{receiver.origin}/v2/enqueue")
    answer = adam.post(f"/alerts/destinations/{row.id}/test", {})
    assert answer.json() == {"message": "The destination accepted a test"}
    assert [b'"resolve"' in one.body for one in receiver.taken] == [False, True]
    receiver.status, receiver.answer = 400, ROUTING_KEY.encode()
    refused = adam.post(f"/alerts/destinations/{row.id}/test", {})
    assert (refused.status_code, refused.json()["message"]) == (400, "It answered 400: ...")
    before = (row.failures, row.last_error, row.last_delivered_at)
    row.refresh_from_db()
    assert (row.failures, row.last_error, row.last_delivered_at) == before
    assert not Alert.objects.exists()


def test_rotation_encrypts_credentials_again(world: World) -> None:
    row = make_destination(world, "webhook", "https://example.com/hook")
    before = bytes(row.encrypted_credentials)
    assert rotate().count == 1
    row.refresh_from_db()
    after = bytes(row.encrypted_credentials)
    assert (after != before, decrypt_credentials(after, Credentials)) == (
        True,
        decrypt_credentials(before, Credentials),
    )


def test_erasure_leaves_nothing_of_an_organization(world: World, adam: Caller) -> None:
    make_destination(world, "webhook", "https://example.com/hook")
    switch_off(world, "first")
    actions.choose_emails(reader=AlertReader(membership=world.acme.memberships.get(user=world.adam)), by_email=False)
    watch(world.elsewhere.id, timezone.now())
    delete_organization(organization=world.acme)
    erase()
    tables = (Alert, AlertDelivery, AlertDestination, AlertReader)
    assert [table.objects.count() for table in tables] == [0, 0, 0, 0]
    assert [one.pk for one in AlertWatch.objects.all()] == [world.elsewhere.pk]
    assert set(AlertRule.objects.values_list("organization_id", flat=True)) == {world.elsewhere.pk}
