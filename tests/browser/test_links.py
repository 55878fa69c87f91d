"""Links of the console: each leads to a page that the user who sees the link may open, in any role. No browser."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import urljoin

import pytest

from tests.browser import console_pages
from tests.support.cast import World
from tests.support.console_client import Visitor
from tests.support.mcp_stand_in import StandIn, _mcp_server, mcp_server
from tests.support.payments import _stub, stripe
from tests.support.stripe_stub import StripeStub

__all__ = ["_mcp_server", "_stub", "mcp_server", "stripe"]
pytestmark = pytest.mark.django_db(transaction=True)
_LINK = re.compile(r'<a\b[^>]*?\bhref="([^"]+)"')


@pytest.mark.parametrize("name", ["olivia", "adam", "dana"])
def test_every_link_leads_to_a_page_that_the_visitor_may_open(
    name: str, world: World, stripe: StripeStub, mcp_server: StandIn
) -> None:
    ids = console_pages.fill(world, stripe, mcp_server)
    visitor = Visitor(getattr(world, name))
    waiting = [console_pages.path_of(route, ids) for route in console_pages.pages()]
    # A page that the role may not open is no link's fault; every other page is read for its links.
    opened = {path: visitor.open(path) for path in waiting}
    followed: dict[str, int] = {}
    for path, answer in opened.items():
        for link in _LINK.findall(answer.content.decode()) if answer.status_code == 200 else ():
            target = urljoin(path, unescape(link)).partition("#")[0]
            if target.startswith("/") and target not in followed:
                followed[target] = visitor.client.get(target, headers={"accept": "text/html"}).status_code
    assert {target: status for target, status in followed.items() if status >= 400} == {}
    assert len(followed) > 40
