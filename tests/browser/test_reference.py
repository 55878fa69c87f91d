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


def test_the_reference_is_accessible_closed_and_open(live_server: Any, tmp_path: Path) -> None:
    with chromium(tmp_path) as browser:
        browser.open(f"{live_server.url}/docs/api")
        browser.wait("document.querySelector('#operations-tag-Chat')")
        assert_accessible(browser)
        browser.click("#operations-tag-Chat button")
        browser.wait("document.querySelector('.opblock-post .opblock-summary-control')")
        browser.click(".opblock-post .opblock-summary-control")
        browser.wait("document.querySelector('.opblock-body textarea')")
        assert_accessible(browser)
        browser.click(".btn.authorize")
        browser.wait("document.querySelector('.modal-ux input')")
        assert_accessible(browser)
        assert browser.problems == []
