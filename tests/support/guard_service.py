"""Guards of an organization that a test scripts: HTTP on this machine, over the receiver of log sinks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from apps.gateway.access import policy
from apps.guardrails import outside_client
from apps.guardrails.models import CustomRule
from apps.kernel.secrets.encryption import encrypt
from tests.support.guardrails_in_force import guard
from tests.support.sink_receiver import Receiver
from tests.support.upstream import Caller

# A signing secret of 32 bytes.
SECRET = "whsec_" + "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
Script = Callable[[dict[str, Any]], Any]


class GuardService:
    """A guard that answers as a test says, and the questions that it got."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.url = f"{receiver.origin}/guard"

    def answers(self, script: Any, *, status: int = 200) -> None:
        """Answer every question so: a JSON value, or a function from the question to one."""

        def then() -> None:
            body = self.receiver.taken[-1].body
            value = script(json.loads(body)) if callable(script) else script
            self.receiver.status = status
            self.receiver.answer = value if isinstance(value, bytes) else json.dumps(value).encode()

        self.receiver.then = then

    @property
    def questions(self) -> list[Any]:
        """The bodies of the requests so far."""
        return [json.loads(one.body) for one in self.receiver.taken]


@pytest.fixture
def service(receiver: Receiver) -> Iterator[GuardService]:
    """A guard that allows everything, until a test says otherwise; no failure is remembered."""
    outside_client.forget_all()
    made = GuardService(receiver)
    made.answers({"action": "allow"})
    yield made
    outside_client.forget_all()


def ask_guard(
    caller: Caller,
    url: str,
    type: str = "webhook",
    *,
    secrets: dict[str, str] | None = None,
    action: str = "block",
    observe: bool = False,
    name: str = "Outside",
    **config: Any,
) -> CustomRule:
    """Put an outside guard in force for a caller, with every rule of the gateway off."""
    guard(caller)
    rule = CustomRule.objects.create(
        organization_id=caller.organization_id,
        name=name,
        type=type,
        config={"type": type, "url": url, **config},
        encrypted_secrets=encrypt(msgspec.json.encode({"secret": SECRET} if secrets is None else secrets)),
        action=action,
        observe_only=observe,
    )
    policy.forget_all()
    return rule
