"""The admin's pages of customers and rules in a real browser: accessible, and no error in the console."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from apps.billing import gifts
from apps.catalog import price_history
from apps.catalog.models import Model, ModelProvider, Provider
from apps.guardrails.models import CustomRule, GuardrailConfig
from apps.keys.models import IamRule
from apps.organizations.actions import create_operator
from tests.browser.axe import LOOKS, look, screenshot, violations
from tests.support.cast import PASSWORD, World, make_key, world
from tests.support.chromium import PROGRAM, Browser, chromium

__all__ = ["world"]

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.stack,
]


def admin(name: str, *arguments: Any) -> str:
    """Return the address of a page of the admin."""
    return reverse(f"admin:{name}", args=arguments)


def sign_in(browser: Browser, url: str) -> None:
    """Give the browser an operator's session."""
    client = Client()
    client.force_login(create_operator(email="op@example.com", password=PASSWORD))
    browser.ask("Network.setCookie", name="sessionid", value=client.cookies["sessionid"].value, url=url)


def test_pages_are_accessible_and_quiet(live_server: Any, tmp_path: Path, world: World) -> None:
    key = make_key(world.olivia, world.project, "The shop's checkout", Decimal(50)).key
    rule = CustomRule.objects.create(
        organization=world.acme, name="Tickets", type="custom_regex", config={"type": "custom_regex", "pattern": "t-1"}
    )
    config = GuardrailConfig.objects.create(organization=world.acme)
    iam = IamRule.objects.create(api_key=key, rule_type="allow_models", rule_value={"models": ["gpt-5"]})
    gifts.give(organization=world.acme, amount=Decimal("12.5"), description="Welcome")
    Provider.objects.create(id="acme-ai", name="Acme AI", dialect="openai", auth="bearer", base_url="http://x.test")
    Model.objects.create(id="acme-1", name="Acme 1", family="acme", mode="chat")
    mapping = ModelProvider.objects.create(
        provider_id="acme-ai", model_id="acme-1", model_name="acme-one", prices={"input": "1"}
    )
    price_history.note_changes({}, {("acme-ai", "acme-1"): {"input": "1"}}, "op@example.com")
    acme = world.acme.pk
    pages = {
        "organization": admin("organizations_organization_change", acme),
        "keys": admin("organizations_organization_keys", acme),
        "audit": admin("organizations_organization_audit", acme),
        "delete": admin("organizations_organization_delete_for_good", acme),
        "key": admin("keys_apikey_change", key.pk),
        "rule": admin("guardrails_customrule_add"),
    }
    if os.environ.get("SHOTS"):
        pages |= {
            "organizations": admin("organizations_organization_changelist"),
            "members": admin("organizations_organization_members", acme),
            "transactions": admin("organizations_organization_transactions", acme),
            "grant": admin("organizations_organization_grant", acme),
            "history": admin("organizations_organization_history", acme),
            "rule_change": admin("guardrails_customrule_change", rule.pk),
            "rule_try": admin("guardrails_customrule_try_text", rule.pk),
            "config": admin("guardrails_guardrailconfig_change", config.pk),
            "iam": admin("keys_iamrule_change", iam.pk),
            "iam_add": admin("keys_iamrule_add"),
            "keys_list": admin("keys_apikey_changelist"),
            "mapping": admin("catalog_modelprovider_change", mapping.pk),
            "mappings": admin("catalog_modelprovider_changelist"),
            "deprecate": admin("catalog_model_deprecate", "acme-1"),
            "user": admin("organizations_user_change", world.olivia.pk),
            "transactions_list": admin("billing_transaction_changelist"),
        }
    found: dict[str, Any] = {}
    with chromium(tmp_path) as browser:
        sign_in(browser, live_server.url)
        for name, page in pages.items():
            browser.open(f"{live_server.url}{page}")
            if complaints := violations(browser):
                found[name] = complaints
            if os.environ.get("SHOTS"):
                for scheme, size in LOOKS:
                    look(browser, scheme, size)
                    screenshot(browser, Path(f"/tmp/shots/{name}-{scheme}-{size[0]}.png"), full=True)
        if os.environ.get("SHOTS"):
            import json

            Path("/tmp/shots/axe.json").write_text(json.dumps(found, indent=1))
        assert browser.problems == []
    assert found == {}
