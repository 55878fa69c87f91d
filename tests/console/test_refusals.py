"""Refused requests in the console: by key and reason, with advice for each, and only one's own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from apps.logs.models import RefusedHour
from tests.support.cast import World, make_key
from tests.support.console_client import Visitor, page, words

HOSTILE = "<script>alert(1)</script>"


def test_an_owner_sees_why_a_key_fails(world: World) -> None:
    key = make_key(world.olivia, world.project, HOSTILE).key
    now = datetime.now(UTC)
    for age, status, code, count in [
        (0, 402, "insufficient_credits", 1_200),
        (2, 402, "insufficient_credits", 34),
        (1, 429, HOSTILE, 5),
        (20, 403, "access_denied", 7),
    ]:
        moment = now - timedelta(days=age)
        RefusedHour.objects.create(
            organization_id=world.acme.id,
            api_key_id=key.id,
            hour=moment.replace(minute=0, second=0, microsecond=0),
            status=status,
            code=code,
            count=count,
            last_at=moment,
        )
    dana = Visitor(world.dana)
    shown = dana.open(page(world.acme, "refusals"))
    text = words(shown)
    assert HOSTILE not in shown.content.decode()
    assert "1,239 refused" in text
    assert "402 insufficient_credits The organization's credits did not cover the request. 1,234" in text
    assert "Add credits, or turn on automatic top-up." in text
    assert "access_denied" not in text
    assert "403 access_denied" in words(dana.open(page(world.acme, "refusals"), days="30"))
    assert dana.open(page(world.acme, "refusals"), days="9").status_code == 400


def test_strangers_see_nothing_and_an_empty_page_says_what_401_means(world: World) -> None:
    assert Visitor(world.sam).open(page(world.acme, "refusals")).status_code == 403
    assert "401 means that the key is wrong" in words(Visitor(world.sam).open(page(world.elsewhere, "refusals")))
