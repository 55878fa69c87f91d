"""Operators' pages in a real browser: axe finds nothing, the policy keeps nothing from running, charts are drawn.

A page of the admin is added to `PAGES` to be looked at like the others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apps.organizations.models import AuditEntry
from tests.browser.axe import assert_accessible
from tests.browser.operators import sign_in_operator, write_traffic
from tests.support.cast import World
from tests.support.chromium import PROGRAM, chromium

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.stack,
    pytest.mark.long,
]
PAGES = [
    "/admin/?window=24h",
    "/admin/logs/requestlog/?time=24h&status=2xx",
    "/admin/logs/requestlog/?q=nothing-like-it",
]


def test_pages_are_accessible_and_work_under_their_policy(live_server: Any, world: World, tmp_path: Path) -> None:
    failed = next(one for one in write_traffic(world, 12) if one.has_error)
    with chromium(tmp_path) as browser:
        sign_in_operator(browser, live_server.url)
        for page in (*PAGES, f"/admin/logs/requestlog/{failed.id}/change/"):
            browser.open(live_server.url + page)
            assert_accessible(browser)
        browser.click("form[action$='/content/'] button")
        browser.wait("document.body.innerText.includes('What is the capital of France?')")
        assert AuditEntry.objects.filter(action="log.show_content", resource_id=str(failed.id)).count() == 1

        browser.open(f"{live_server.url}/admin/")
        browser.wait("Object.keys(Chart.instances).length === 4")
        browser.run("document.querySelector('.skip-link').focus()")
        assert browser.run("document.querySelector('.skip-link').getBoundingClientRect().top >= 0")
        assert browser.run("document.querySelectorAll('main').length") == 1
        assert [one for one in browser.problems if "Content Security Policy" in one or "Error" in one] == []
