"""The console in a real browser: from sign-up to the first request, a key with a rule, a member, and the end of it all.

Every page is looked at by axe, light and dark, wide and narrow; nothing is written to the browser's console.
`CONSOLE_PICTURES` names a folder that gets a picture of each page.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from apps.console.browser_session import COOKIE
from apps.keys.models import ApiKey, IamRule
from apps.keys.secrets import digest_of
from apps.logs.models import ActivityDelta
from apps.organizations.credentials.sessions import start_session
from apps.organizations.models import Invitation, Organization, Plan
from tests.browser.axe import ALL_LOOKS, NARROW, WIDE, look, screenshot, violations
from tests.logs.entries import entry, write
from tests.support.cast import PASSWORD, World
from tests.support.chromium import PROGRAM, Browser, chromium

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.stack,
]
PICTURES = os.environ.get("CONSOLE_PICTURES")
# The organization's pages beside those of the walk.
PAGES = ("", "keys/new", "projects", "projects/new", "audit", "settings", "settings/delete")


def shown(browser: Browser, name: str) -> None:
    """Let axe look at the page, and keep pictures of it where they are asked for."""
    for seen, complaints in violations(browser).items():
        browser.problems += [f"{name}, {seen}: {one}" for one in complaints]
    for scheme, size in ALL_LOOKS if PICTURES else ():
        look(browser, scheme, size)
        width = "wide" if size == WIDE else "narrow"
        screenshot(browser, Path(str(PICTURES)) / f"{name}-{scheme}-{width}.png", full=size == NARROW)
    look(browser, "light", WIDE)


def send(browser: Browser, button: str) -> None:
    """Press the button of a form, as a person does: a missing required field stops the form."""
    browser.run(f"document.querySelector({button!r}).closest('form').requestSubmit(document.querySelector({button!r}))")


def add_days(key: ApiKey) -> None:
    """Give the overview something to draw."""
    for index in range(7):
        for model, cost in (("gpt-5", 4), ("claude-sonnet-4-5", 3), ("gemini-2.5-flash", 1)):
            ActivityDelta.objects.create(
                date=datetime.now(UTC).date() - timedelta(days=index),
                organization_id=key.project.organization_id,
                project_id=key.project_id,
                api_key_id=key.id,
                model=model,
                provider="openai",
                request_count=100 + 40 * (index % 3),
                error_count=index,
                cache_count=12,
                total_tokens=90_000 + 7_000 * index,
                cost=Decimal(cost) * (1 + Decimal(index % 4) / 3),
            )


def test_a_person_gets_from_sign_up_to_a_first_request_and_to_the_end(live_server: Any, tmp_path: Path) -> None:
    with chromium(tmp_path) as browser:
        browser.open(f"{live_server.url}/app/sign-in")
        shown(browser, "sign-in")
        browser.open(f"{live_server.url}/app/forgot-password")
        shown(browser, "forgot-password")
        browser.open(f"{live_server.url}/app/sign-up")
        shown(browser, "sign-up")
        for name, value in (("name", "Nora"), ("email", "nora@example.com"), ("password", PASSWORD)):
            browser.fill(f"[name={name}]", value)
        send(browser, "#sign-up [type=submit]")
        browser.wait("document.body.innerText.includes('First steps')")
        organization = Organization.objects.get()
        home = f"{live_server.url}/app/o/{organization.id}/"

        send(browser, "form[action$='first-key'] button")
        browser.wait("document.querySelector('#token')")
        key = ApiKey.objects.get()
        assert bytes(key.digest) == digest_of(browser.text("#token"))
        assert browser.text("#token") in browser.text("#code-1")
        # Where the browser refuses the clipboard, the text is selected at least, and nothing fails.
        browser.click("[data-copy=token]")
        browser.wait("document.querySelector('[data-copy=token]').textContent !== 'Copy'")
        browser.wait("document.querySelector('#first-request-2-tab')")
        browser.click("#first-request-2-tab")
        assert "from openai import OpenAI" in browser.text("#code-2")
        browser.click("#first-request-1-tab")
        shown(browser, "onboarding")
        failure = {"code": "overloaded", "status": 503}
        write(entry(key), entry(key, has_error=True, unified_finish_reason="upstream_error", error_details=failure))
        add_days(key)
        browser.wait("document.body.innerText.includes('Your first request arrived.')")

        browser.open(home)
        browser.wait("document.querySelectorAll('.chart rect[class^=series]').length > 7")
        assert "The provider: overloaded" in browser.text()
        shown(browser, "overview")
        browser.ask("Emulation.setLocaleOverride", locale="de-DE")
        browser.open(home)
        browser.wait("document.querySelectorAll('data:not([data-shown])').length === 0")
        spend, requests = browser.run("[...document.querySelectorAll('.stat > dd > data')].map((one) => one.value)")[:2]
        told = browser.text().replace("\N{NO-BREAK SPACE}", " ")
        assert f"\n{spend.replace('.', ',')} $\n" in told
        assert f"\n{requests[0]}.{requests[1:]}\n" in told
        browser.ask("Emulation.setLocaleOverride")

        browser.open(f"{home}keys/{key.id}")
        browser.run("document.querySelector('details.more').open = true")
        browser.fill("[name=models]", "gpt-5")
        send(browser, "details.more [value=add-rule]")
        browser.wait("document.body.innerText.includes('The rule is on.')")
        assert IamRule.objects.get().rule_value == {"models": ["gpt-5"]}
        browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
        shown(browser, "key")
        browser.open(f"{home}keys")
        shown(browser, "keys")

        browser.open(f"{home}members")
        browser.fill("[name=email]", "mia@example.com")
        send(browser, "[value=invite]")
        browser.wait("document.body.innerText.includes('on its way to mia@example.com')")
        assert Invitation.objects.get().email == "mia@example.com"
        shown(browser, "members")

        Organization.objects.update(plan=Plan.ENTERPRISE)
        project = organization.projects.get()
        for page in (*PAGES, f"projects/{project.id}"):
            browser.open(home + page)
            shown(browser, page.replace("/", "-") or "home")
        for page in ("organizations", "organizations/new", "account", "account/sign-in-methods"):
            browser.open(f"{live_server.url}/app/{page}")
            shown(browser, page.replace("/", "-"))

        browser.open(f"{home}settings/delete")
        browser.fill("[name=name]", organization.name)
        send(browser, ".danger[type=submit]")
        browser.wait("document.body.innerText.includes('The deletion was requested')")
        organization.refresh_from_db()
        assert organization.status == "deleting"
        shown(browser, "settings-deleting")
        # They include the findings of axe.
        assert browser.problems == []


def test_a_form_that_is_too_old_is_sent_by_going_back(live_server: Any, world: World, tmp_path: Path) -> None:
    """The user has signed in again in another tab; they need not type the form's text again."""
    with chromium(tmp_path) as browser:
        browser.ask("Network.setCookie", name=COOKIE, value=start_session(world.olivia), url=live_server.url)
        browser.open(f"{live_server.url}/app/o/{world.acme.id}/projects/new")
        browser.fill("[name=name]", "Typed once")
        browser.ask("Network.setCookie", name="csrftoken", value="A" * 32, url=live_server.url)
        send(browser, "form.form [type=submit]")
        browser.wait("document.body.innerText.includes('Go back and send the form again')")
        browser.run("history.back()")
        browser.wait("document.querySelector('[name=name]')")
        assert browser.run("document.querySelector('[name=name]').value") == "Typed once"
        send(browser, "form.form [type=submit]")
        browser.wait("document.body.innerText.includes('The project was created.')")
        assert world.acme.projects.filter(name="Typed once").count() == 1
