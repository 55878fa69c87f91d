"""The admin's pages of customers and rules in a real browser: axe finds nothing, and the policy stops nothing."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.urls import reverse

from apps.billing import gifts
from tests.browser.axe import assert_accessible
from tests.browser.operators import sign_in_operator
from tests.support.cast import World, make_key
from tests.support.chromium import PROGRAM, chromium

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.stack,
    pytest.mark.long,
]


def admin(name: str, *arguments: Any) -> str:
    """Return the address of a page of the admin."""
    return reverse(f"admin:{name}", args=arguments)


def test_pages_are_accessible_and_quiet(live_server: Any, tmp_path: Path, world: World) -> None:
    key = make_key(world.olivia, world.project, "The shop's checkout", Decimal(50)).key
    gifts.give(organization=world.acme, amount=Decimal("12.5"), description="Welcome")
    acme = world.acme.pk
    pages = (
        admin("organizations_organization_change", acme),
        admin("organizations_organization_keys", acme),
        admin("organizations_organization_audit", acme),
        admin("organizations_organization_delete_for_good", acme),
        admin("keys_apikey_change", key.pk),
        admin("organizations_user_change", world.olivia.pk),
        admin("organizations_user_add"),
        admin("auth_group_add"),
        admin("guardrails_customrule_add"),
    )
    with chromium(tmp_path) as browser:
        sign_in_operator(browser, live_server.url)
        for page in pages:
            browser.open(f"{live_server.url}{page}")
            assert_accessible(browser)
        assert [one for one in browser.problems if "Content Security Policy" in one or "Error" in one] == []

        # A rule's form shows the fields of its type.
        browser.run("document.querySelector('#id_type').value = 'custom_regex'")
        browser.run("document.querySelector('#id_type').dispatchEvent(new Event('change', {bubbles: true}))")
        browser.wait("document.querySelector('#id_pattern').offsetParent !== null")
        assert browser.run("document.querySelector('#id_terms').offsetParent === null")
