"""Three hundred at once on one dollar: nobody spends past it by more than the estimates of those in flight were wrong,
whoever dies meanwhile, and nothing stays held."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
import requests

from tests.stack.product import Product, eventually

pytestmark = [pytest.mark.stack, pytest.mark.timeout(240)]

AT_ONCE = 300
DOLLAR = Decimal(1)
ANSWER = {"model": "sandbox/echo", "max_tokens": 16_384}
# Tokens that the sandbox counts: as many as were reserved at most, fewer, and (for its prompt) many more.
LESS, MORE = "usage=10,12000", "usage=20000,16384"
STATE = """
import json
from apps.billing import balances, reservations
from apps.kernel.redis import client
held = {name: int(client().hget(name, "held") or 0) for name in client().keys("balance:*")}
notes = {name: client().hlen(name) for name in client().keys("notes:*")}
flights = {name: client().zcard(name) for name in client().keys("flight:*")}
print("STATE" + json.dumps({"held": held, "notes": notes, "flights": flights}))
"""


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """A server with two web workers, to be harmed."""
    product = Product(tmp_path_factory.mktemp("spending"), WEB_WORKERS="2", RATE_LIMIT_ENTERPRISE="0")
    yield product
    product.stop()


@dataclass
class Purse:
    """A key that may spend one dollar, by a limit of its own or by its organization's credits."""

    product: Product
    organization_id: str
    token: str
    outcomes: Counter[str] = field(default_factory=Counter)

    def ask(self, script: str) -> str:
        """Ask once; return the status or the refusal's code, and `broken` when nobody answered."""
        body = {**ANSWER, "messages": [{"role": "user", "content": f"hi [[sandbox {script}]]"}]}
        try:
            response = requests.post(
                f"{self.product.url}/v1/chat/completions", json=body, headers=self.headers, timeout=60
            )
        except requests.RequestException:
            return "broken"
        return "answered" if response.status_code == 200 else str(response.json()["error"]["code"])

    def wave(self, scripts: list[str]) -> None:
        """Ask all of it at once."""
        start = threading.Barrier(len(scripts))

        def one(script: str) -> str:
            start.wait(30)
            return self.ask(script)

        with ThreadPoolExecutor(len(scripts)) as clients:
            self.outcomes.update(clients.map(one, scripts))

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}", "x-request-id": uuid4().hex}

    def estimate(self) -> Decimal:
        """Return what is reserved for a request."""
        body = {**ANSWER, "messages": [{"role": "user", "content": f"hi [[sandbox {MORE} latency=1500]]"}]}
        answer = requests.post(f"{self.product.url}/v1/route/explain", json=body, headers=self.headers, timeout=10)
        return Decimal(answer.json()["estimate"]["max_cost_usd"])

    def logs(self) -> list[dict[str, Any]]:
        """Return every log row of the key's."""
        found: list[dict[str, Any]] = []
        cursor: dict[str, str] = {}
        while True:
            page = requests.get(
                f"{self.product.url}/logs", params={"limit": "100", **cursor}, headers=self.headers, timeout=10
            ).json()
            found += page["logs"]
            if not page["pagination"]["hasMore"]:
                return found
            cursor = {"cursor": page["pagination"]["nextCursor"]}

    def costs(self) -> list[Decimal]:
        """Return what each request cost, once nothing waits to be settled."""
        eventually(lambda: self.product.metrics().get("gateway_outbox_depth") == 0, patience=30)
        time.sleep(1.1)
        eventually(lambda: self.product.metrics().get("gateway_outbox_depth") == 0, patience=30)
        return [Decimal(str(row["cost"] or 0)) for row in self.logs()]

    def credits(self) -> Decimal:
        """Return the organization's credits."""
        found = owner(self.product, "GET", "/organization")["organizations"]
        return Decimal(next(one["credits"] for one in found if one["id"] == self.organization_id))


def owner(product: Product, method: str, path: str, **body: Any) -> Any:
    """Ask management as the demo organization's owner."""
    response = requests.request(
        method,
        product.url + path,
        json=body or None,
        headers={"Authorization": f"Bearer {product.demo['sessionToken']}"},
        timeout=10,
    )
    assert response.status_code == 200, response.text
    return response.json()


def purse_with_credits(product: Product) -> Purse:
    """Return a key of a new organization that has exactly one dollar."""
    name = f"Purse {uuid4().hex[:8]}"
    organization_id = owner(product, "POST", "/organization", name=name)["organization"]["id"]
    product.manage("set_plan", organization_id, "enterprise")
    product.manage("grant_credits", organization_id, "1")
    (project,) = owner(product, "GET", f"/organization/{organization_id}/projects")["projects"]
    key = owner(product, "POST", "/keys/api", description="purse", projectId=project["id"])["apiKey"]
    return Purse(product, organization_id, key["token"])


def purse_with_limit(product: Product) -> Purse:
    """Return a key of the demo organization, which has plenty, that may spend one dollar."""
    demo = product.demo
    key = owner(product, "POST", "/keys/api", description="limit", projectId=demo["projectId"], usageLimit="1")[
        "apiKey"
    ]
    return Purse(product, demo["organizationId"], key["token"])


def assert_nothing_is_held(product: Product) -> None:
    """Assert that no reservation is left, nor anybody in flight, and that the books are in order."""

    def left() -> dict[str, int]:
        """Return what is not nothing; a balance that holds less than nothing is not nothing either."""
        found = json.loads(product.manage("shell", "-c", STATE).partition("STATE")[2])
        return {name: amount for part in found.values() for name, amount in part.items() if amount}

    deadline = time.monotonic() + 45
    while found := left():
        assert time.monotonic() < deadline, found
    assert product.manage("check_ledger") == "Every balance equals the sum of its ledger entries.\n"


def assert_within(costs: list[Decimal], estimate: Decimal) -> None:
    """Assert that a dollar was not passed by more than what those in flight cost beyond their estimates."""
    assert len(costs) > 50
    assert sum(costs) <= DOLLAR + sum(cost - estimate for cost in costs if cost > estimate)


def test_a_key_with_a_limit_of_one_dollar(product: Product) -> None:
    purse = purse_with_limit(product)
    before, estimate = purse.credits(), purse.estimate()
    purse.wave([f"{LESS} latency=1500"] * AT_ONCE)
    assert set(purse.outcomes) == {"answered", "usage_limit_exceeded"}
    # Those in flight together never hold more than a dollar: had all been, it would be so many.
    assert purse.outcomes["answered"] >= int(DOLLAR / estimate)
    first = purse.costs()
    assert sum(first) <= DOLLAR
    # What was held beyond the cost can be spent: asked again and again, all but the last request's worth is.
    while purse.ask(LESS) == "answered":
        purse.outcomes["answered"] += 1
        if purse.outcomes["answered"] % 5 == 0:
            purse.costs()
    costs = purse.costs()
    assert DOLLAR - estimate * 6 < sum(costs) <= DOLLAR
    assert before - purse.credits() == sum(costs)
    assert len(costs) == purse.outcomes["answered"]
    assert_nothing_is_held(product)


def test_an_organization_with_one_dollar_while_a_worker_dies(product: Product) -> None:
    purse = purse_with_credits(product)
    estimate = purse.estimate()
    assert purse.credits() == DOLLAR
    scripts = [f"{MORE if number % 2 else LESS} latency=1500" for number in range(AT_ONCE)]
    wave = threading.Thread(target=purse.wave, args=(scripts,))
    wave.start()
    eventually(lambda: len(in_flight(product)) > 20, patience=30)
    product.kill("gunicorn")
    wave.join(90)
    assert purse.outcomes["broken"] > 0
    assert purse.outcomes["insufficient_credits"] > 0
    assert set(purse.outcomes) <= {"answered", "broken", "insufficient_credits"}
    # The sweeper gives back what the dead worker held, after its lease.
    assert_nothing_is_held(product)
    costs = purse.costs()
    assert_within(costs, estimate)
    assert DOLLAR - purse.credits() == sum(costs)
    rows = Counter(row["unifiedFinishReason"] for row in purse.logs())
    assert rows["completed"] >= purse.outcomes["answered"]
    assert sum(rows.values()) <= purse.outcomes["answered"] + purse.outcomes["broken"]
    # What is left can be spent, and no more.
    purse.outcomes.clear()
    purse.wave([MORE] * AT_ONCE)
    costs = purse.costs()
    assert_within(costs, estimate)
    assert purse.credits() < estimate
    assert DOLLAR - purse.credits() == sum(costs)
    assert_nothing_is_held(product)


def in_flight(product: Product) -> list[dict[str, Any]]:
    """Return what the sandbox is answering."""
    return [one for one in product.sandbox("GET", "/sandbox/requests")["requests"] if one["outcome"] is None]
