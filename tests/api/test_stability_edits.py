"""Image editing by Stability's models, over real HTTP in their format (section 4.10)."""

from __future__ import annotations

from decimal import Decimal
from uuid import uuid4

import pytest

from apps.logs.models import RequestLog
from tests.support.image_requests import MASK, data_url, edit
from tests.support.upstream import Caller, nothing_happened, settle_all


@pytest.mark.parametrize(("model", "price"), [("sd3.5-large", "0.065"), ("stable-image-ultra", "0.08")])
def test_stability_changes_a_picture_at_the_price_of_a_new_one(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, model: str, price: str
) -> None:
    monkeypatch.setenv("STABILITY_API_KEY", "secret")
    monkeypatch.setenv("STABILITY_BASE_URL", caller.sandbox_url)
    tag = uuid4().hex
    response = edit(caller, f"a hat [[sandbox tag={tag}]]", model=model, n=2, input_fidelity="high")
    assert (response.status_code, len(response.json()["data"])) == (200, 2), response.content
    assert [one["path"].rpartition("/")[2] for one in caller.sent(tag)] == [
        "sd3" if model == "sd3.5-large" else "ultra"
    ] * 2
    assert settle_all() == 1
    assert RequestLog.objects.get().cost == 2 * Decimal(price)


def test_a_mask_for_stability_is_refused_by_name(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STABILITY_API_KEY", "secret")
    refused = edit(caller, "a hat", model="stable-image-ultra", mask={"image_url": data_url(MASK)})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "mask")
    assert nothing_happened(caller)
