"""Alerts in a real browser: one of every kind is in the list and counted by the bell, until all are marked as read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apps.alerts.kind_names import KindName
from apps.organizations.models import Organization, Plan
from tests.alerts.scenarios import SCENARIOS, add_rule, fire, make_rule
from tests.browser.test_every_page import problems, visit
from tests.support.cast import World
from tests.support.chromium import PROGRAM, chromium
from tests.support.console_client import page

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.stack,
]
BELL = "document.querySelector('.bell').textContent"


def test_an_alert_of_every_kind_is_read(world: World, live_server: Any, tmp_path: Path) -> None:
    # Each scenario has a key of its own.
    Organization.objects.update(plan=Plan.ENTERPRISE)
    make_rule(world, "payment_failed")
    for scenario in SCENARIOS:
        if scenario.kind != "payment_failed":
            # Every scenario adds requests, so that the share of errors is smaller than alone.
            lower = {"percent": 10} if scenario.kind == "error_rate" else {}
            add_rule(world, scenario.kind, **{**scenario.parameters, **lower})
    for scenario in SCENARIOS:
        scenario.begin(world)
    alerts = fire(world)
    assert {one.kind for one in alerts} == set(KindName.values)
    with chromium(tmp_path) as browser:
        visit(browser, live_server.url, world.olivia)
        browser.open(live_server.url + page(world.acme, "alerts"))
        shown = browser.text()
        assert [one.title for one in alerts if one.title not in shown] == []
        assert shown.count("the page about:") == len(alerts)
        assert f"{len(alerts)} unread" in browser.run(BELL)
        browser.click("form[action$='alerts/read'] button")
        browser.wait(f"!{BELL}.includes('unread')")
        assert problems(browser) == []
