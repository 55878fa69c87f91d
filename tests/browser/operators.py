"""An operator in a browser, with something to look at: sign-in by session, and traffic of the last day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.test import Client

from apps.logs import rollup, traffic
from apps.logs.entry import Entry
from apps.organizations.actions import create_operator
from tests.logs.entries import entry, id_at, write
from tests.support.cast import PASSWORD, World, make_key
from tests.support.chromium import Browser

_MODELS = [("gpt-5", "openai"), ("claude-sonnet-4-5", "anthropic"), ("gemini-2.5-pro", "google")]


def sign_in_operator(browser: Browser, url: str, email: str = "op@example.com") -> None:
    """Give the browser the session of a new operator at this address."""
    client = Client()
    client.force_login(create_operator(email=email, password=PASSWORD))
    browser.ask("Network.setCookie", name="sessionid", value=client.cookies["sessionid"].value, url=url)


def write_traffic(world: World, count: int = 200) -> list[Entry]:
    """Write requests of the last day as the settler does, folded into their sums; return them, the newest first."""
    key, now = make_key(world.olivia, world.project).key, datetime.now(UTC)
    entries = []
    for number in range(count):
        model, provider = _MODELS[number * number % 7 % len(_MODELS)]
        failed = number % 23 == 5
        entries.append(
            entry(
                key,
                id=id_at(now - timedelta(seconds=20 + number * 80_000 // count)),
                **_outcome(failed),
                requested_model=model,
                used_model=model,
                used_provider=provider,
                duration=300 + number * 37 % 2_900,
                time_to_first_token=80 + number * 13 % 700 if number % 2 else None,
                prompt_tokens=200 + number * 31 % 3_000,
                completion_tokens=20 + number * 17 % 600,
                cached_tokens=number % 5 * 40,
                cached=number % 11 == 0,
                total_tokens=220 + number * 48 % 3_600,
                routing_metadata=_routing(model, provider, failed),
                retention_level="retain",
                messages=[{"role": "user", "content": "What is the capital of France?"}],
                content=None if failed else "Paris.",
                temperature=0.7,
                streamed=bool(number % 2),
            )
        )
    write(*entries)
    rollup.roll_up()
    traffic.fold()
    return entries


def _outcome(failed: bool) -> dict[str, Any]:
    if failed:
        return {
            "has_error": True,
            "status_code": 502,
            "unified_finish_reason": "upstream_error",
            "error_details": {"status": 502, "type": "upstream_error", "code": "overloaded", "message": "Overloaded"},
        }
    costs = {"input_cost": Decimal("0.0025"), "output_cost": Decimal("0.00375"), "cached_input_cost": Decimal("0.0001")}
    return {"cost": sum(costs.values()), **costs, "finish_reason": "stop"}


def _routing(model: str, provider: str, failed: bool) -> dict[str, Any]:
    figures = {"price": 5.25, "uptime": 99.8, "latency": 412.0, "throughput": 88.5}
    first = {"provider": "azure", "model": model, "status_code": 503, "error_type": "overloaded", "succeeded": False}
    last = {"provider": provider, "model": model, "status_code": 502, "error_type": "upstream_error"}
    if not failed:
        last |= {"status_code": 200, "error_type": "none"}
    return {
        "availableProviders": ["azure", provider],
        "selectedProvider": "azure",
        "selectionReason": "weighted-score",
        "providerScores": [
            {"providerId": "azure", "score": 0.93, **figures, "uptime": 97.5},
            {"providerId": provider, "score": 0.88, **figures},
        ],
        "routing": [first, {**last, "succeeded": not failed}],
    }
