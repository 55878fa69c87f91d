"""The product with the sandbox instead of real providers: one for each wire format."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import requests

from tests.stack.product import Product, eventually
from tests.support.google_service_accounts import account_json


@dataclass(frozen=True, slots=True)
class Behind:
    """A model of the catalog that the sandbox answers for, and the path under which it speaks the model's format."""

    format: str
    provider: str
    model_id: str
    path: str
    key_variable: str

    @property
    def model(self) -> str:
        """The model that clients ask for."""
        return f"{self.provider}/{self.model_id}"


CLOUD = "/v1/projects/acme-project/locations/global"
"""The place at Google Cloud of the account that the sandbox gives tokens to."""

BEHIND = (
    Behind("openai", "openai", "gpt-5-mini", "/v1", "OPENAI_API_KEY"),
    Behind("anthropic", "anthropic", "claude-haiku-4-5", "/v1", "ANTHROPIC_API_KEY"),
    Behind("google", "google", "gemini-3.5-flash", "/v1beta", "GEMINI_API_KEY"),
)
"""The formats that differ most: every client's tests run over them."""

EVERY_FORMAT = (
    *BEHIND,
    # A model that OpenAI serves in no other format.
    Behind("responses", "openai", "gpt-5.3-codex", "/v1", "OPENAI_API_KEY"),
    Behind("bedrock", "bedrock", "claude-sonnet-4-5", "", "AWS_BEARER_TOKEN_BEDROCK"),
    Behind("cohere", "cohere", "command-a-plus", "/v2", "COHERE_API_KEY"),
    Behind("vertex", "vertex", "gemini-3-flash", CLOUD, "GOOGLE_APPLICATION_CREDENTIALS"),
    Behind("vertex_anthropic", "vertex", "claude-sonnet-4-6", CLOUD, "GOOGLE_APPLICATION_CREDENTIALS"),
)
"""One provider of every format: the tests of the two clients that all others are built on run over all of them."""

# The sandbox knows none of their models' names, so it is asked for one of its own. Each model has one provider only:
# the tests of errors lower a provider's uptime, and the tests after them would be routed to another format. No model
# ends here, whatever its provider has announced.
_SET_UP = """
from apps.catalog.models import ModelProvider
behind = {behind}
ModelProvider.objects.filter(provider_id__in=behind.values(), model__mode="chat").update(model_name="echo")
ModelProvider.objects.filter(provider_id__in=behind.values(), model_id__in=behind).update(deactivated_at=None)
for model, provider in behind.items():
    ModelProvider.objects.filter(model_id=model).exclude(provider_id=provider).update(active=False)
"""


@dataclass(frozen=True, slots=True)
class Key:
    """An API key: its id in the log, and what opens the door."""

    id: str
    token: str


class Gateway(Product):
    """The running product, and what its log and the sandbox remember."""

    def __init__(self, home: Path, sandbox_url: str) -> None:
        self.sandbox_url = sandbox_url
        environment = {"SANDBOX_BASE_URL": f"{sandbox_url}/v1", "SANDBOX_API_KEY": "sandbox"}
        # Servers of tools that tests register are on this machine.
        environment["GATEWAY_ALLOW_PRIVATE_ADDRESSES"] = "true"
        for behind in EVERY_FORMAT:
            environment[f"{behind.provider.upper()}_BASE_URL"] = sandbox_url + behind.path
            environment[behind.key_variable] = "sandbox"
        account = home / "account.json"
        account.write_text(account_json(token_uri=f"{sandbox_url}/token"))
        super().__init__(home, **{**environment, "GOOGLE_APPLICATION_CREDENTIALS": str(account)})
        self.manage("shell", "-c", _SET_UP.format(behind={behind.model_id: behind.provider for behind in EVERY_FORMAT}))

    @property
    def openai_url(self) -> str:
        """The base URL for OpenAI's clients."""
        return f"{self.url}/v1"

    @property
    def key(self) -> str:
        """The demo's API key."""
        return str(self.demo["apiKey"])

    def sent(self, tag: str) -> list[dict[str, Any]]:
        """Return what providers were sent under a tag of the sandbox's."""
        answer = requests.get(f"{self.sandbox_url}/sandbox/requests", params={"tag": tag}, timeout=60)
        return list(answer.json()["requests"])

    def new_key(self, description: str) -> Key:
        """Return an API key of the demo's project, to tell its requests from others."""
        headers = {"Authorization": f"Bearer {self.demo['sessionToken']}"}
        body = {"description": description, "projectId": self.demo["projectId"]}
        answer = requests.post(f"{self.url}/keys/api", json=body, headers=headers, timeout=60)
        assert answer.status_code == 200, answer.text
        made = answer.json()["apiKey"]
        return Key(made["id"], made["token"])

    def mask_personal_data(self, *, is_on: bool) -> None:
        """Mask personal data for models, in results of tools as well, by no other rule; or switch guardrails off."""
        headers = {"Authorization": f"Bearer {self.demo['sessionToken']}"}
        listed = requests.get(f"{self.url}/guardrails/system-rules", headers=headers, timeout=60).json()["rules"]
        rules: dict[str, Any] = {one["id"].removeprefix("system:"): {"enabled": False} for one in listed}
        rules["pii_detection"] = {"enabled": True, "action": "redact", "roles": {"tool_result": "redact"}}
        address = f"{self.url}/guardrails/config/{self.demo['organizationId']}"
        answer = requests.put(address, json={"enabled": is_on, "systemRules": rules}, headers=headers, timeout=60)
        assert answer.status_code == 200, answer.text

    def logs_of(self, key: Key) -> list[dict[str, Any]]:
        """Return the log entries of a key's requests, oldest first, once all are settled.

        An answer does not wait for its record: the first of them may not even be queued yet.
        """

        def found() -> list[dict[str, Any]]:
            self._settle()
            return [log for log in reversed(self.all_logs()) if log["apiKeyId"] == key.id]

        eventually(found)
        return found()

    def _settle(self) -> None:
        eventually(lambda: self.metrics().get("gateway_outbox_depth") == 0)

    def is_paid_to_the_last_digit(self) -> bool:
        """Return whether the log's costs equal the drop in credits, and the ledger adds up."""
        self._settle()
        spent = sum((Decimal(str(log["cost"] or 0)) for log in self.all_logs()), Decimal(0))
        adds_up = self.manage("check_ledger") == "Every balance equals the sum of its ledger entries.\n"
        return adds_up and Decimal(100) - Decimal(self.credits()) == spent
