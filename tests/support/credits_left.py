"""An organization's credits, its holds on them, and the answers when they run out."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from apps.billing import balances
from apps.catalog.models import ModelProvider
from apps.gateway.access import policy
from apps.kernel.money import NANO
from apps.kernel.valkey import generation
from apps.kernel.valkey.redis import client as valkey
from apps.organizations.models import Organization
from tests.support.upstream import Caller

CENT = Decimal("0.01")
# A letter is a quarter of a token here, and at the sandbox.
BIG = "[[sandbox kb=400]]"
# The same, of a provider that does not heed the limit that it is given.
HEEDLESS = "[[sandbox kb=400 heedless]]"
# The amount by which a prompt's estimate may fall below the sandbox's count, and one token of rounding, in USD.
SLIP = Decimal("0.00005")


def credited(caller: Caller, credits: Decimal | str | int) -> None:
    """Give the organization credits; its log keeps what requests were like."""
    Organization.objects.filter(pk=caller.organization_id).update(credits=credits, retention_level="metadata")
    valkey().delete(balances.key("organization", caller.organization_id), balances.key("key", caller.key.pk))
    policy.forget_all()


def priced(output: str, **fields: Any) -> None:
    """Give `echo` another price and other fields."""
    prices = {"input": "0.15", "output": output}
    ModelProvider.objects.filter(model_id="echo").update(prices=prices, **fields)
    generation.bump(generation.CATALOG)


def credits_of(caller: Caller) -> Decimal:
    return Organization.objects.get(pk=caller.organization_id).credits


def held(caller: Caller) -> Decimal:
    """Return the amount held on the credits, in USD."""
    value = valkey().hget(balances.key("organization", caller.organization_id), "held")
    return Decimal(int(value or 0)) / NANO


def chunks_in(content: bytes) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in content.decode().split("\n") if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def events_in(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in content.decode().split("\n") if line.startswith("data: ")]


def warnings_of(metadata: dict[str, Any]) -> list[str]:
    return [one["param"] for one in metadata.get("warnings", [])]


def opened(caller: Caller, content: str, **fields: Any) -> Any:
    """Begin a stream at the door that a server uses; it goes on when it is asked for its next piece."""
    response = caller.chat(content, stream=True, **fields)
    assert response.status_code == 200, response.content
    return response._iterator
