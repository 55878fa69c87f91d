"""The API reference in a real browser: axe finds nothing, neither on the page nor in an operation that is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.axe import assert_accessible
from tests.support.chromium import PROGRAM, chromium

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.stack,
    pytest.mark.long,
]


def test_operations_are_found_and_old_addresses_lead_to_them(live_server: Any, tmp_path: Path) -> None:
    paths = ("/keys/api/{keyId}", "/keys/api/{keyId}/iam/{ruleId}", "/v1/keys/{keyHash}", "/keys/provider/{keyId}")
    found = [f"DELETE\n{path}" for path in paths]
    with chromium(tmp_path) as browser:
        browser.open(f"{live_server.url}/docs/api")
        assert_accessible(browser)
        browser.fill("#find", "KEYS  delete /keys/")
        browser.run("document.querySelector('#find').dispatchEvent(new Event('input'))")
        shown = browser.run(
            "[...document.querySelectorAll('[data-operation]')].filter((one) => one.checkVisibility())"
            ".map((one) => one.querySelector('a').innerText)"
        )
        assert (shown, browser.text("#found")) == (found, "4 operations")
        assert_accessible(browser)
        browser.run("location.hash = '#/API%20keys'")
        browser.wait("location.pathname === '/docs/api/api-keys' && document.querySelector('.opblock.is-open')")
        assert browser.problems == []


def test_a_page_of_the_reference_is_accessible_closed_and_open(live_server: Any, tmp_path: Path) -> None:
    with chromium(tmp_path) as browser:
        browser.open(f"{live_server.url}/docs/api/chat")
        browser.wait("document.querySelector('.opblock-post .opblock-summary-control')")
        assert_accessible(browser)
        browser.wait("document.querySelector('.opblock-post .opblock-summary-control')")
        browser.click(".opblock-post .opblock-summary-control")
        browser.wait("document.querySelector('.opblock-body textarea')")
        assert_accessible(browser)
        browser.click(".btn.authorize")
        browser.wait("document.querySelector('.modal-ux input')")
        assert_accessible(browser)
        assert browser.problems == []
