"""Native batches at the sandbox: handed over, looked at and fetched by a worker of this process.

Asserts only that holds were released.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from django.utils import timezone
from openai import OpenAI

from apps.batches.models import NativeJob
from apps.batches.native.provider_api import ProviderApi
from apps.billing import balances, reservations
from apps.billing.models import LedgerEntry
from apps.billing.pricing import Bill
from apps.billing.worker_leases import worker_name
from apps.catalog.models import ModelProvider, Provider
from apps.gateway.failures import UpstreamFailure
from apps.kernel.valkey import generation
from apps.kernel.valkey.redis import client as valkey
from apps.logs.models import RequestLog
from apps.organizations.models import Organization
from apps.sandbox.batches import MOMENT
from tests.batches.batch_work import create, line, work_all
from tests.support.upstream import Caller

OPENAI, ANTHROPIC, GOOGLE, MISTRAL = (
    f"{provider}/echo-batch" for provider in ("sandbox", "messages", "contents", "jobs")
)
MODELS = [OPENAI, ANTHROPIC, GOOGLE, MISTRAL]
# Each provider's dialect, way to show its key, path, and format of batches.
_PROVIDERS = {
    "messages": ("anthropic", "x-api-key", "/v1", "anthropic"),
    "contents": ("google", "x-goog-api-key", "/v1beta", "google"),
    "jobs": ("openai", "bearer", "/v1", "mistral"),
    "deployments": ("openai", "api-key", "/v1", "openai"),
}
# The sandbox takes directives behind a model's name: they stand for the end of a deployment's name.
SUFFIX = ":tag=deployment-for-batches"


@pytest.fixture
def batch_providers(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """Providers that speak the formats of Anthropic, Google and Mistral, and one with deployments as at Azure; each
    is the sandbox."""
    for name, (dialect, auth, path, form) in _PROVIDERS.items():
        key = f"{name.upper()}_API_KEY"
        monkeypatch.setenv(key, "secret")
        monkeypatch.setenv(f"{name.upper()}_BASE_URL", f"{caller.sandbox_url}{path}")
        Provider.objects.create(id=name, name=name, dialect=dialect, auth=auth, base_url="http://x", api_key_env=key)
        row = ModelProvider.objects.get(provider_id="sandbox", model_id="echo-batch")
        row.pk, row.provider_id = None, name
        ending = {"deployment_suffix": SUFFIX} if name == "deployments" else {}
        row.facts = {"batch": {"format": form, "price_share": "0.5"} | ending}
        row._state.adding = True
        row.save()
    generation.bump(generation.CATALOG)


def look() -> None:
    """Look at every job now, as a worker does whose time has come; and do what follows from it."""
    # Until then the sandbox's jobs go on.
    time.sleep(1.5 * MOMENT)
    NativeJob.objects.exclude(status="ended").update(next_look_at=timezone.now())
    work_all()


def run_natively(openai: OpenAI, lines: list[Any]) -> Any:
    """Create a batch, have it handed over and fetched, and return the batch as the API shows it then."""
    made = create(openai, lines)
    for _ in range(2):
        look()
    return openai.batches.retrieve(made.id)


def asked(model: str, custom_id: str, words: str = "", **fields: Any) -> dict[str, Any]:
    """Return a line for a model, with directives for the sandbox."""
    return line(custom_id, f"hello [[sandbox {words}]]" if words else "hello", model=model, **fields)


def bill_of(row: RequestLog) -> Bill:
    """Return what a row's cost follows from."""
    return msgspec.convert(row.prices, Bill, strict=False)


def nothing_is_held(caller: Caller) -> bool:
    """Tell whether each hold was given back, and the credits are 100 USD less what the log says."""
    spent = sum(row.cost + (row.data_storage_cost or 0) for row in RequestLog.objects.all())
    held = LedgerEntry.objects.filter(kind="hold")
    released = LedgerEntry.objects.filter(kind="hold_release")
    assert {one.reference: -one.credits for one in held} == {one.reference: one.credits for one in released}
    organization = Organization.objects.get(pk=caller.organization_id)
    in_valkey = valkey().hget(balances.key("organization", caller.organization_id), "held")
    return (organization.credits, in_valkey, reservations.notes_of(worker_name(), 0)) == (100 - spent, "0", {})


def refuse_jobs(patch: pytest.MonkeyPatch) -> list[str]:
    """Have batch APIs refuse new jobs for their load; return a list to which the methods of other calls are added."""
    calls, usual = list[str](), ProviderApi.call

    def call(api: ProviderApi, method: str, path: str, body: Any = None) -> dict[str, Any]:
        if method == "POST":
            raise UpstreamFailure("rate_limited", "Too many requests", status=429)
        calls.append(method)
        return usual(api, method, path, body)

    patch.setattr(ProviderApi, "call", call)
    return calls


def api_calls(caller: Caller, path: str) -> list[str]:
    """Return the methods of what the sandbox was asked under a path of its batch APIs."""
    return [one["method"] for one in caller.sent("batches") if one["path"] == path]
