"""Applied proposals: requests are billed at the new price from then on, and earlier bills keep theirs."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

from apps.catalog import actions, catalog_cache
from apps.catalog.models import CatalogProposal
from apps.catalog.tasks import propose
from apps.kernel.valkey import generation
from apps.logs.models import RequestLog
from tests.support.upstream import Caller, settle_all


def test_a_request_costs_the_new_price_once_a_proposal_is_applied(
    caller: Caller, tmp_path: Path, settings: Any
) -> None:
    listed = {"litellm_provider": "sandbox", "input_cost_per_token": 0.1e-06, "output_cost_per_token": 0.6e-06}
    (tmp_path / "list.json").write_text(json.dumps({"sandbox/echo": listed}))
    settings.CATALOG_PRICE_LISTS = [f"litellm={tmp_path / 'list.json'}"]
    assert caller.chat("hi [[sandbox usage=1000,200]]").json()["usage"]["cost_usd_total"] == 0.00027
    propose()
    # It waits, and changes no bill.
    assert caller.chat("hi [[sandbox usage=1000,200]]").json()["usage"]["cost_usd_total"] == 0.00027
    [row] = CatalogProposal.objects.filter(provider="sandbox")
    actions.apply_proposals([row], "op@example.com")
    generation.bump(generation.CATALOG)
    catalog_cache.process_copy.distrust()
    assert caller.chat("hi [[sandbox usage=1000,200]]").json()["usage"]["cost_usd_total"] == 0.00022
    settle_all()
    costs = RequestLog.objects.order_by("id").values_list("cost", flat=True)
    assert list(costs) == [Decimal("0.00027"), Decimal("0.00027"), Decimal("0.00022")]
