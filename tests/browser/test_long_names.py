"""The console with names as people choose them: long, unbroken, of any script; on a screen, on a phone, on paper."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from apps.keys.models import ApiKey
from apps.logs import traffic
from apps.logs.models import RequestLog
from apps.organizations.models import User
from tests.browser.axe import NARROW, WIDE, assert_accessible, look
from tests.browser.operators import sign_in_operator
from tests.browser.test_every_page import visit
from tests.logs.entries import ago, entry, id_at, write
from tests.support.cast import World, make_key
from tests.support.chromium import PROGRAM, Browser, chromium
from tests.support.console_client import page

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.stack,
]
UNBROKEN = "AVeryLongNameWithoutAnySpacesThatGoesOnForeverAndEverUntilItEnds_0123456789_0123456789_0123456789"
SENTENCE = "Übersetzung der Verträge, Rechnungen und Kundenkorrespondenz (EMEA), Produktion"
MODEL = f"accounts/fireworks/models/llama-v3p1-405b-instruct-{'long-' * 10}context-preview-2026-08-31-experimental"
# Pages that name projects, keys, models or people.
PAGES = ("", "logs", "usage", "usage?by=project", "keys", "keys/new", "projects", "mcp-servers", "members")


@pytest.fixture
def url(world: World, live_server: Any) -> str:
    """The address of a server whose Acme has long names and a request with one."""
    world.acme.name, world.project.name = SENTENCE, UNBROKEN
    world.acme.plan = "enterprise"
    world.acme.save()
    world.project.save()
    # A name that has nothing of the address.
    User.objects.filter(pk=world.olivia.pk).update(name="فريق الترجمة والدعم الفني")
    keys = [make_key(world.olivia, world.project, name).key for name in (SENTENCE, UNBROKEN, "翻訳チーム・本番環境🚀")]
    write(
        *(
            entry(key, id=id_at(ago(minutes=age)), used_model=MODEL, used_provider="azure-with-a-long-name")
            for age, key in enumerate(keys)
        )
    )
    return str(live_server.url)


def overflow(browser: Browser, selector: str) -> int:
    """Return by how many pixels the content of an element is wider than the element."""
    return int(browser.run(f"(() => {{ const e = {selector}; return e.scrollWidth - e.clientWidth; }})()"))


def test_other_columns_stay_in_sight_and_names_are_whole(url: str, world: World, tmp_path: Path) -> None:
    with chromium(tmp_path) as browser:
        visit(browser, url, world.olivia)
        look(browser, "light", WIDE)
        browser.open(url + page(world.acme, "keys"))
        assert overflow(browser, "document.querySelector('.table-wrap')") <= 0
        assert UNBROKEN in browser.text(".table-wrap")
        for name in ("logs", "usage"):
            browser.open(url + page(world.acme, name))
            assert MODEL in browser.text("main > .table-wrap"), name
            assert overflow(browser, "document.querySelector('main > .table-wrap')") <= 0, name


def test_pages_are_as_wide_as_a_phone_and_named_for_screen_readers(url: str, world: World, tmp_path: Path) -> None:
    with chromium(tmp_path) as browser:
        visit(browser, url, world.olivia)
        look(browser, "light", NARROW)
        wider = {}
        key = ApiKey.objects.get(description=UNBROKEN)
        own = (f"keys/{key.id}", f"logs/{RequestLog.objects.values_list('id', flat=True)[0]}")
        for name in (*PAGES, *own):
            browser.open(url + page(world.acme, name))
            wider[name] = overflow(browser, "document.documentElement")
        assert wider == dict.fromkeys((*PAGES, *own), 0)
        browser.open(url + page(world.acme, "mcp-servers"))
        assert_accessible(browser)


def test_paper_has_no_navigation_and_nothing_to_press(url: str, world: World, tmp_path: Path) -> None:
    with chromium(tmp_path) as browser:
        visit(browser, url, world.olivia)
        browser.open(url + page(world.acme, "billing"))
        dark = [{"name": "prefers-color-scheme", "value": "dark"}]
        browser.ask("Emulation.setEmulatedMedia", media="print", features=dark)
        pressed = "[...document.querySelectorAll('.sidebar, .topbar, main .button')]"
        assert browser.run(f"{pressed}.filter((one) => one.checkVisibility()).length") == 0
        assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert browser.run("getComputedStyle(document.querySelector('h1')).color") == "rgb(0, 0, 0)"
        assert browser.run("document.querySelector('.stats').checkVisibility()")


def test_the_dashboard_keeps_its_figures_beside_long_names(url: str, world: World, tmp_path: Path) -> None:
    write(entry(make_key(world.olivia, world.project).key, used_model=MODEL, cost=Decimal("1234567.89")))
    traffic.fold()
    with chromium(tmp_path) as browser:
        sign_in_operator(browser, url)
        look(browser, "light", WIDE)
        browser.open(f"{url}/admin/?window=7d")
        assert MODEL in browser.text()
        tables = browser.run("document.querySelectorAll('.board-tables .board-scroll').length")
        for number in range(3):
            assert overflow(browser, f"document.querySelectorAll('.board-tables .board-scroll')[{number}]") <= 0, number
        assert tables >= 3
        wide = (
            "[...document.querySelectorAll('.board-figure')].filter((one) => one.scrollWidth > one.clientWidth).length"
        )
        assert browser.run(wide) == 0
