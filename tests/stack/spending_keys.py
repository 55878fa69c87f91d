"""Spending keys: API keys with a fixed amount to spend, and a check that none of their holds remain."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any
from uuid import uuid4

import requests

from tests.stack.product import Product, eventually

ANSWER = {"model": "sandbox/echo", "max_tokens": 16_384}
# Tokens that the sandbox counts: as many as were reserved at most, fewer, and (for its prompt) many more.
LESS, MORE = "usage=10,12000", "usage=20000,16384"
STATE = """
import json
from apps.billing import balances, reservations
from apps.kernel.valkey.redis import client
held = {name: int(client().hget(name, "held") or 0) for name in client().keys("*balance:*")}
notes = {name: client().hlen(name) for name in client().keys("*notes:*")}
flights = {name: client().zcard(name) for name in client().keys("*flight:*")}
print("STATE" + json.dumps({"held": held, "notes": notes, "flights": flights}))
"""


@dataclass
class SpendingKey:
    """A key that may spend so much, by its own limit or its organization's credits; `asking` is what it asks.

    A `patient` one comes back, as SDKs do, when a busy gateway says when: what it shed was never begun.
    """

    product: Product
    organization_id: str
    token: str
    session: str
    asking: dict[str, Any] = field(default_factory=lambda: dict(ANSWER))
    patient: bool = False
    outcomes: Counter[str] = field(default_factory=Counter)

    def ask(self, script: str) -> str:
        """Return `answered`, the refusal's code, or `broken` when no answer came."""
        body = {**self.asking, "messages": [{"role": "user", "content": f"hi [[sandbox {script}]]"}]}
        for _ in range(5 if self.patient else 1):
            try:
                response = requests.post(
                    f"{self.product.url}/v1/chat/completions", json=body, headers=self.headers, timeout=60
                )
            except requests.RequestException:
                return "broken"
            if response.status_code != 503 or "retry-after" not in response.headers:
                break
            time.sleep(float(response.headers["retry-after"]))
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
        """Return the amount reserved for a request."""
        body = {**self.asking, "messages": [{"role": "user", "content": f"hi [[sandbox {MORE} latency=1500]]"}]}
        answer = requests.post(f"{self.product.url}/v1/route/explain", json=body, headers=self.headers, timeout=60)
        return Decimal(answer.json()["estimate"]["max_cost_usd"])

    def logs(self) -> list[dict[str, Any]]:
        """Return every log row of the key's."""
        found: list[dict[str, Any]] = []
        cursor: dict[str, str] = {}
        while True:
            page = requests.get(
                f"{self.product.url}/logs", params={"limit": "100", **cursor}, headers=self.headers, timeout=60
            ).json()
            found += page["logs"]
            if not page["pagination"]["hasMore"]:
                return found
            cursor = {"cursor": page["pagination"]["nextCursor"]}

    def costs(self) -> list[Decimal]:
        """Return what each request cost, once nothing waits to be settled."""
        eventually(lambda: self.product.metrics().get("gateway_outbox_depth") == 0)
        # The gauge is of the last second.
        time.sleep(1.1)
        eventually(lambda: self.product.metrics().get("gateway_outbox_depth") == 0)
        return [Decimal(str(row["cost"] or 0)) for row in self.logs()]

    def credits(self) -> Decimal:
        """Return the organization's credits."""
        found = manage(self.product, self.session, "GET", "/organization")["organizations"]
        return Decimal(next(one["credits"] for one in found if one["id"] == self.organization_id))


def manage(product: Product, session: str, method: str, path: str, **body: Any) -> Any:
    """Call the management API as the session's user."""
    headers = {"Authorization": f"Bearer {session}"} if session else {}
    response = requests.request(method, product.url + path, json=body or None, headers=headers, timeout=20)
    assert response.status_code == 200, response.text
    return response.json()


def key_with_credits(product: Product, amount: str = "1", **asking: Any) -> SpendingKey:
    """Return a key of a new user, whose organization has exactly so many dollars."""
    fields = {"name": "SpendingKey", "email": f"{uuid4().hex}@example.com", "password": "a long walk by the sea"}
    session = manage(product, "", "POST", "/auth/sign-up/email", **fields)["token"]
    (organization,) = manage(product, session, "GET", "/organization")["organizations"]
    organization_id = organization["id"]
    product.manage("set_plan", organization_id, "enterprise")
    product.manage("grant_credits", organization_id, amount)
    (project,) = manage(product, session, "GET", f"/organization/{organization_id}/projects")["projects"]
    key = manage(product, session, "POST", "/keys/api", description="spending_key", projectId=project["id"])["apiKey"]
    return SpendingKey(product, organization_id, key["token"], session, {**ANSWER, **asking})


def key_with_limit(product: Product) -> SpendingKey:
    """Return a key of a new organization, which has a hundred dollars, that may spend one of them."""
    rich = key_with_credits(product, "100")
    (project,) = manage(product, rich.session, "GET", f"/organization/{rich.organization_id}/projects")["projects"]
    fields = {"description": "limit", "projectId": project["id"], "usageLimit": "1"}
    return replace(rich, token=manage(product, rich.session, "POST", "/keys/api", **fields)["apiKey"]["token"])


def assert_nothing_is_held(product: Product) -> None:
    """Assert that no reservation and no request in flight is left, and that the books are in order.

    A store that is too busy to say so is asked again.
    """

    def left() -> dict[str, int]:
        """Return the figures other than 0; a balance with negative holds counts too."""
        try:
            found = json.loads(product.manage("shell", "-c", STATE).partition("STATE")[2])
        except AssertionError as error:
            return {str(error): 1}
        return {name: amount for part in found.values() for name, amount in part.items() if amount}

    deadline = time.monotonic() + 45
    while found := left():
        assert time.monotonic() < deadline, found
    assert product.manage("check_ledger") == "Every balance equals the sum of its ledger entries.\n"
