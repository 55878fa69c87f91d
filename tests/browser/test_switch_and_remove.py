"""Rows that are switched and removed, clicked in a browser: log sinks, MCP servers, provider keys; and a refused form.

The text typed stays, and the first field that is wrong has the focus.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apps.console.browser_session import COOKIE
from apps.keys.models import ProviderKey
from apps.log_sinks.models import LogSink
from apps.mcp_servers.models import McpServer
from apps.organizations.credentials.sessions import start_session
from apps.organizations.models import Plan
from tests.browser.axe import assert_accessible
from tests.log_sinks.sinks import make_sink
from tests.support.cast import World
from tests.support.chromium import PROGRAM, Browser, chromium
from tests.support.console_client import Visitor, page
from tests.support.mcp_stand_in import TOKEN, StandIn, _mcp_server, mcp_server
from tests.support.shipped_catalog import stock

__all__ = ["_mcp_server", "mcp_server"]
pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.stack,
]
_BUTTON = "[...document.querySelectorAll('main button')].find((one) => one.innerText.trim().startsWith('%s'))"


def click(browser: Browser, words: str) -> None:
    """Click the first button that begins with these words, and wait for the page that follows."""
    browser.run("window.isOld = true")
    browser.run(f"{_BUTTON % words}.click()")
    browser.wait("!window.isOld && document.readyState === 'complete'")


def stock_rows(world: World, mcp_server: StandIn) -> None:
    """Give Acme a row of each."""
    stock()
    world.acme.plan = Plan.ENTERPRISE
    world.acme.save()
    olivia = Visitor(world.olivia)
    make_sink(world, "webhook", "https://logs.acme.example/in", name="archive")
    olivia.send(
        page(world.acme, "mcp-servers"),
        {"name": "tickets", "url": mcp_server.url, "token": TOKEN, "everyTool": "true", "everyProject": "true"}
        | {"timeoutSeconds": "30", "test": "false"},
    )
    olivia.send(
        page(world.acme, "provider-keys"), {"provider": "openai", "token": "sk-live-0000000000", "test": "false"}
    )


def test_each_row_is_switched_off_on_and_removed_after_a_question(
    world: World, mcp_server: StandIn, live_server: Any, tmp_path: Path
) -> None:
    stock_rows(world, mcp_server)
    rows: list[tuple[str, Any, str]] = [
        ("log-sinks", LogSink.objects.exclude(status="deleted"), "Remove the log sink archive?"),
        ("mcp-servers", McpServer.objects.exclude(status="deleted"), "Remove the MCP server tickets?"),
        ("provider-keys", ProviderKey.objects.exclude(status="deleted"), "Remove the key for openai?"),
    ]
    with chromium(tmp_path) as browser:
        browser.ask("Network.setCookie", name=COOKIE, value=start_session(world.olivia), url=live_server.url)
        for path, found, question in rows:
            browser.open(live_server.url + page(world.acme, path))
            for words, status in (("Switch off", "inactive"), ("Switch on", "active")):
                click(browser, words)
                assert found.all().get().status == status, path
                assert f"is {status} now." in browser.text(".message.success")
            browser.run(f"const remove = {_BUTTON % 'Remove'}; remove.focus(); remove.click()")
            assert browser.text("dialog[open] h2") == question
            assert browser.run("document.activeElement.innerText") == "Keep it"
            assert_accessible(browser)
            browser.run("document.activeElement.click()")
            assert browser.run("document.querySelector('dialog[open]') === null")
            assert browser.run("document.activeElement.innerText").startswith("Remove …")
            assert found.all().count() == 1
            browser.run("document.activeElement.click()")
            browser.run("window.isOld = true; document.querySelector('dialog[open] .danger').click()")
            browser.wait("!window.isOld && document.readyState === 'complete'")
            assert "removed" in browser.text(".message.success"), path
            assert found.all().count() == 0
        # A hint on forms with several passwords is none of a defect.
        assert [one for one in browser.problems if not one.startswith("[DOM]")] == []


def test_the_first_field_that_is_wrong_has_the_focus_and_what_was_typed_stays(
    world: World, mcp_server: StandIn, live_server: Any, tmp_path: Path
) -> None:
    stock_rows(world, mcp_server)
    with chromium(tmp_path) as browser:
        browser.ask("Network.setCookie", name=COOKIE, value=start_session(world.olivia), url=live_server.url)
        browser.open(live_server.url + page(world.acme, "log-sinks"))
        assert browser.run("document.activeElement === document.body")
        browser.fill("#field-name", "archive two")
        browser.run("document.querySelector('#field-kind').value = 's3'")
        browser.fill("#field-url", "https://93.184.215.14")
        browser.fill("#field-region", "eu-central-1")
        click(browser, "Add sink")
        assert browser.run("document.activeElement.name") == "bucket"
        kept = [browser.run(f"document.querySelector('#field-{name}').value") for name in ("name", "kind", "region")]
        assert kept == ["archive two", "s3", "eu-central-1"]
        assert_accessible(browser)
        browser.open(live_server.url + page(world.acme, "provider-keys"))
        browser.run("document.querySelector('[name=once]').value = ''")
        browser.run("document.querySelector('#field-provider').value = 'openai'")
        browser.fill("#field-token", "sk-live-1111111111")
        browser.run("document.querySelector('#field-test').checked = false")
        click(browser, "Add the key")
        assert browser.run("document.activeElement.getAttribute('role')") == "alert"
        assert "reload the page" in browser.run("document.activeElement.innerText")
        assert ProviderKey.objects.count() == 1
