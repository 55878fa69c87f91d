"""Page context of one request in the admin: its row as sections with readable labels. Pure.

Content of customers is included on explicit request only.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from django.urls import reverse

from apps.kernel.money import plain
from apps.kernel.pages import number_formats as as_text
from apps.logs.models import RequestLog

# Cost component, its column, the counted column, and the name of its price.
_COSTS = (
    ("Input", "input_cost", "prompt_tokens"),
    ("Input read from the provider's cache", "cached_input_cost", "cached_tokens"),
    ("Input written to the provider's cache", "cache_write_cost", "cache_write_tokens"),
    ("Output", "output_cost", "completion_tokens"),
    ("Images, input", "image_input_cost", "image_input_tokens"),
    ("Images, output", "image_output_cost", "image_output_tokens"),
    ("Per request", "request_cost", ""),
    ("Web search", "web_search_cost", ""),
)
_PARAMETERS = (
    *("temperature", "max_tokens", "top_p", "frequency_penalty", "presence_penalty", "reasoning_effort"),
    "reasoning_max_tokens",
)
# Characters of a text on the page.
_MAX_CHARACTERS = 20_000


@dataclass(frozen=True, slots=True)
class Fact:
    """A label and a value; `href` links to the value's page."""

    title: str
    value: str
    href: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One call of a provider, in chronological order."""

    number: int
    provider: str
    model: str
    outcome: str
    succeeded: bool
    score: str


@dataclass(frozen=True, slots=True)
class Said:
    """A stored message: its author and text."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class RequestPage:
    """The context of the page."""

    headline: list[Fact]
    failure: list[Fact]
    attempts: list[Attempt]
    chosen_because: str
    scores: list[list[str]]
    costs: list[list[str]]
    total_cost: str
    facts: list[Fact]
    parameters: list[Fact]
    keeps_content: bool
    said: list[Said] = field(default_factory=list)


def page_of(row: RequestLog, names: dict[str, str], *, with_content: bool = False) -> RequestPage:
    """Return a row's page. `names` maps ids to display names."""
    routing: dict[str, Any] = row.routing_metadata if isinstance(row.routing_metadata, dict) else {}
    return RequestPage(
        headline=_headline(row),
        failure=_failure(row),
        attempts=_attempts(routing),
        chosen_because=str(routing.get("selectionReason", "")).replace("-", " "),
        scores=_scores(routing),
        costs=_costs(row),
        total_cost=_amount(row.cost),
        facts=_facts(row, names),
        parameters=[
            Fact(name.replace("_", " "), f"{value:g}" if isinstance(value, float) else str(value))
            for name in _PARAMETERS
            if (value := getattr(row, name)) is not None
        ],
        keeps_content=keeps_content(row),
        said=_said(row) if with_content else [],
    )


def keeps_content(row: RequestLog) -> bool:
    """Whether the row has content of the customer, the model or the provider."""
    message = row.error_details.get("message") if isinstance(row.error_details, dict) else None
    return any((row.messages, row.content, row.reasoning_content, row.tool_results, message))


def _headline(row: RequestLog) -> list[Fact]:
    return [
        Fact("Status", str(row.status_code or as_text.NOTHING)),
        Fact("Ended", (row.unified_finish_reason or "unknown").replace("_", " ")),
        Fact("Duration", as_text.milliseconds(row.duration)),
        Fact("First token", as_text.milliseconds(row.time_to_first_token)),
        Fact("Tokens", f"{_count(row.prompt_tokens)} in, {_count(row.completion_tokens)} out"),
        Fact("Cost", _amount(row.cost) + (" estimated" if row.estimated_cost else "")),
    ]


def _failure(row: RequestLog) -> list[Fact]:
    details = row.error_details
    if not row.has_error or not isinstance(details, dict):
        return []
    names = {"type": "Class", "code": "Code", "status": "Status", "reason": "Reason"}
    return [Fact(title, str(details[name])) for name, title in names.items() if details.get(name) is not None]


def _attempts(routing: dict[str, Any]) -> list[Attempt]:
    scores = {str(line.get("providerId")): line.get("score") for line in _lines(routing, "providerScores")}
    attempts = []
    for number, line in enumerate(_lines(routing, "routing"), start=1):
        provider, succeeded = str(line.get("provider", "")), line.get("succeeded") is True
        details = [] if line.get("status_code") is None else [f"HTTP {line['status_code']}"]
        if not succeeded:
            details.append(str(line.get("error_type", "failed")).replace("_", " "))
        score = scores.get(provider)
        attempts.append(
            Attempt(
                number,
                provider,
                str(line.get("model", "")),
                ", ".join(["answered" if succeeded else "failed", *details]),
                succeeded,
                as_text.NOTHING if score is None else f"{float(score):.2f}",
            )
        )
    return attempts


def _scores(routing: dict[str, Any]) -> list[list[str]]:
    return [
        [
            str(line.get("providerId", "")),
            _number(line.get("score"), "{:.2f}"),
            _number(line.get("price"), "${:g}"),
            _number(line.get("uptime"), "{:g}%"),
            as_text.milliseconds(line["latency"]) if _is_number(line.get("latency")) else as_text.NOTHING,
            _number(line.get("throughput"), "{:g} tokens/s"),
            "open" if line.get("circuit") == "open" else "closed",
        ]
        for line in _lines(routing, "providerScores")
    ]


def _costs(row: RequestLog) -> list[list[str]]:
    rows = []
    for title, column, counted in _COSTS:
        amount = getattr(row, column)
        if amount:
            tokens = getattr(row, counted) if counted else None
            rows.append([title, _count(tokens) if tokens is not None else "", _amount(amount)])
    if row.data_storage_cost:
        rows.append(["Storage, on top", "", _amount(row.data_storage_cost)])
    if row.discount_savings:
        rows.append(["Saved by discounts", "", _amount(row.discount_savings)])
    return rows


def _facts(row: RequestLog, names: dict[str, str]) -> list[Fact]:
    def linked(title: str, table: str, identifier: object) -> Fact:
        name = names.get(str(identifier))
        text = f"{name} ({identifier})" if name else str(identifier)
        return Fact(title, text, reverse(f"admin:{table}_change", args=[identifier]) if name is not None else "")

    asked = row.requested_model
    # Clients may write the provider before the model.
    if row.requested_provider and not asked.startswith(f"{row.requested_provider}/"):
        asked = f"{row.requested_provider}/{asked}"
    facts = [
        Fact("Sent", f"{row.created_at:%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC"),
        linked("Organization", "organizations_organization", row.organization_id),
        linked("Project", "organizations_project", row.project_id),
        linked("API key", "keys_apikey", row.api_key_id),
        Fact("Request id", row.request_id),
        Fact("Log id", str(row.pk)),
        Fact("Route", row.route.replace("_", " ")),
        Fact("Asked for", asked),
        Fact("Answered by", f"{row.used_provider}/{row.used_model}" if row.used_provider else "nobody"),
        Fact("Upstream model name", row.underlying_model),
        Fact("Paid with", row.used_mode or row.mode),
        Fact("Streamed", _yes(row.streamed)),
        Fact("From the response cache", _yes(row.cached)),
        Fact("Client left", _yes(row.canceled)),
        Fact("Response size", f"{as_text.count(row.response_size)} bytes"),
        Fact("Stored", {"none": "no content", "metadata": "metadata", "retain": "content"}[row.retention_level]),
    ]
    if row.provider_key_id is not None:
        facts.insert(4, linked("Provider key", "keys_providerkey", row.provider_key_id))
    return [fact for fact in facts if fact.value]


def _said(row: RequestLog) -> list[Said]:
    said = []
    for message in row.messages if isinstance(row.messages, list) else [row.messages] if row.messages else []:
        role = str(message.get("role", "")) if isinstance(message, dict) else ""
        content = message.get("content") if isinstance(message, dict) else message
        said.append(Said(role.capitalize() or "Message", _text(content)))
    details = row.error_details if isinstance(row.error_details, dict) else {}
    for title, text in (
        ("Reasoning", row.reasoning_content),
        ("Answer", row.content),
        ("Results of tools", row.tool_results),
        ("The provider's error", details.get("message")),
    ):
        if text:
            said.append(Said(title, _text(text)))
    return said


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    return (
        text
        if len(text) <= _MAX_CHARACTERS
        else f"{text[:_MAX_CHARACTERS]}… and {as_text.count(len(text) - _MAX_CHARACTERS)} characters"
    )


def _lines(routing: dict[str, Any], name: str) -> list[dict[str, Any]]:
    lines = routing.get(name)
    return [line for line in lines if isinstance(line, dict)] if isinstance(lines, list) else []


def _amount(amount: Decimal | None) -> str:
    """Return the exact amount without trailing zeros."""
    return as_text.NOTHING if amount is None else f"${plain(amount)}"


def _count(number: int | None) -> str:
    return as_text.NOTHING if number is None else as_text.count(number)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _number(value: Any, form: str) -> str:
    return form.format(value) if _is_number(value) else as_text.NOTHING


def _yes(value: bool | None) -> str:
    return "" if value is None else "yes" if value else "no"
