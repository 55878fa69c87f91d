"""A provider for each wire format in which the gateway calls providers, all of them played by the sandbox."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from apps.catalog.models import ModelProvider, Provider
from apps.gateway.access import policy
from apps.gateway.access.schemes import google_service_account
from tests.support.google_service_accounts import account_json
from tests.support.upstream import Caller

# By format: the scheme of its credentials, and where the sandbox speaks it.
_CLOUD = ("google-service-account", "/v1/projects/acme-project/locations/global")
PLACES = {
    "openai": ("bearer", "/v1"),
    "anthropic": ("x-api-key", "/v1"),
    "google": ("x-goog-api-key", "/v1beta"),
    "responses": ("bearer", "/v1"),
    "bedrock": ("aws-sigv4", ""),
    "cohere": ("bearer", "/v2"),
    "vertex": _CLOUD,
    "vertex_anthropic": _CLOUD,
    "vertex_openai": _CLOUD,
    "azure_anthropic": ("x-api-key", "/anthropic/v1"),
}
# The fields that the data files have for models of a format.
FACTS: dict[str, dict[str, Any]] = {
    "bedrock": {"reasoning_form": "thinking", "takes": ["tool_choice"], "tool_results": "without_files"},
    "responses": {"developer_role": True},
}
OTHER = "other"


def add_provider(
    caller: Caller,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    dialect: str,
    *,
    auth: str = "bearer",
    path: str = "/v1",
    secret: str = "",
    facts: dict[str, Any] | None = None,
) -> None:
    """Add a provider that is the sandbox, at a path of its own, and has no models yet; `offer_models` gives it some."""
    monkeypatch.setenv(f"{name.upper()}_TEST_KEY", secret or f"{name}-secret")
    monkeypatch.setenv(f"{name.upper()}_BASE_URL", caller.sandbox_url + path)
    Provider.objects.create(
        id=name,
        name=name.title(),
        dialect=dialect,
        auth=auth,
        base_url="http://x",
        api_key_env=f"{name.upper()}_TEST_KEY",
        facts=facts or {},
    )


def offer_models(provider_id: str, change: Callable[[ModelProvider], object] | None = None, **which: Any) -> None:
    """Have a provider offer the sandbox's models, or those of them that are `which`, as `change` leaves them."""
    for mapping in ModelProvider.objects.filter(provider_id="sandbox", **which):
        mapping.pk, mapping.provider_id, mapping._state.adding = None, provider_id, True
        if change is not None:
            change(mapping)
        mapping.save()
    policy.forget_all()


def play(
    caller: Caller,
    wire_format: str,
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    name: str = OTHER,
    **fields: Any,
) -> None:
    """Add a provider `name` of the format that has the sandbox's models; the sandbox itself stays beside it.

    `fields` are columns of its mappings that say something else than the sandbox's do.
    """
    auth, path = PLACES[wire_format]
    secret = f"{name}-secret"
    if auth == "google-service-account":
        file = folder / f"{name}.json"
        email = f"{uuid4().hex}@acme.iam.gserviceaccount.com"
        file.write_text(account_json(email, token_uri=f"{caller.sandbox_url}/token"))
        google_service_account.forget_all()
        secret = str(file)
    facts = FACTS.get(wire_format)
    add_provider(caller, monkeypatch, name, wire_format, auth=auth, path=path, secret=secret, facts=facts)

    def change(mapping: ModelProvider) -> None:
        mapping.reasoning = True
        for field, value in fields.items():
            setattr(mapping, field, value)

    offer_models(name, change)
