"""Every list of the admin, the form of a new row, and a row's page, with rows: axe finds nothing.

The pages come from the registered models, so that a new one is looked at without being named here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.contrib import admin
from django.test import RequestFactory
from django.urls import reverse

from apps.organizations.models import User
from tests.browser import console_pages
from tests.browser.axe import violations
from tests.browser.operators import sign_in_operator, write_traffic
from tests.support.cast import World
from tests.support.chromium import PROGRAM, chromium
from tests.support.mcp_stand_in import StandIn, _mcp_server, mcp_server
from tests.support.payments import _stub, stripe
from tests.support.stripe_stub import StripeStub

__all__ = ["_mcp_server", "_stub", "mcp_server", "stripe"]
pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.stack,
    pytest.mark.long,
]
# Tests of pages one by one; each has a share of them.
SHARES = 8


def pages(user: User) -> list[str]:
    """Return the paths of lists, of forms of new rows, and of the first row of each table."""
    request = RequestFactory().get("/admin/")
    request.user = user
    found = []
    for model, page in admin.site._registry.items():
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        if not page.has_view_permission(request):
            continue
        found.append(reverse(f"{name}_changelist"))
        if page.has_add_permission(request):
            found.append(reverse(f"{name}_add"))
        row = page.get_queryset(request).first()
        if row is not None:
            found.append(reverse(f"{name}_change", args=[row.pk]))
    return found


@pytest.mark.parametrize("number", range(SHARES))
def test_a_page_is_accessible(
    number: int, world: World, stripe: StripeStub, mcp_server: StandIn, live_server: Any, tmp_path: Path
) -> None:
    console_pages.fill(world, stripe, mcp_server)
    write_traffic(world, 12)
    with chromium(tmp_path) as browser:
        sign_in_operator(browser, live_server.url)
        found = []
        for path in pages(User.objects.get(email="op@example.com"))[number::SHARES]:
            browser.open(live_server.url + path)
            found += [f"{path}, {seen}: {one}" for seen, said in violations(browser).items() for one in said]
        assert found == []
