"""The page of one request: which of its fields are shown, to whom, and how. Pure.

The console and the admin show the same page, each in its own layout. Content of customers (messages, answers, a
provider's error message) is on it only if it is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, Final

from django.utils.translation import gettext, pgettext

from apps.kernel.pages import number_formats as as_text
from apps.kernel.pages.languages import gettext_lazy
from apps.logs.answers import SHOWN_TYPES
from apps.logs.attempts import Waterfall, waterfall_of
from apps.logs.conversation import Said, answers_of, as_shown, messages_of, settings_of
from apps.logs.models import RequestLog
from apps.logs.query import COLUMNS, JSON_COLUMNS, LogRow, objects_in, read_json, read_object

# Messages on the page; the export has all of them.
MAX_MESSAGES: Final = 100
# Characters of an answer in the list.
MAX_LINE: Final = 100
# Finish reasons, as stored and as shown.
ENDS: Final = (
    ("completed", gettext_lazy("Completed")),
    ("tool_calls", gettext_lazy("Asked for tools")),
    ("length_limit", gettext_lazy("Cut off at its limit")),
    ("content_filter", gettext_lazy("Content filter")),
    ("client_error", gettext_lazy("Request refused")),
    ("upstream_error", gettext_lazy("Provider failed")),
    ("gateway_error", gettext_lazy("Gateway failed")),
    ("canceled", gettext_lazy("Client left")),
    ("unknown", gettext_lazy("Unknown")),
)
# Column of a cost, its label, and the column with its tokens.
_COSTS: Final = (
    ("input_cost", gettext_lazy("Input"), "prompt_tokens"),
    ("cached_input_cost", gettext_lazy("Cached input"), "cached_tokens"),
    ("cache_write_cost", gettext_lazy("Written to the cache"), "cache_write_tokens"),
    ("output_cost", gettext_lazy("Output"), "completion_tokens"),
    ("image_input_cost", gettext_lazy("Images in"), "image_input_tokens"),
    ("image_output_cost", gettext_lazy("Images out"), "image_output_tokens"),
    ("request_cost", gettext_lazy("Per request"), ""),
    ("web_search_cost", gettext_lazy("Web search"), ""),
)
_NOT_IN_THE_TOTAL: Final = (
    ("discount_savings", gettext_lazy("Saved by discounts")),
    ("data_storage_cost", gettext_lazy("Log storage (not in the total)")),
)
_TOKENS: Final = (
    ("prompt_tokens", gettext_lazy("Prompt")),
    ("cached_tokens", gettext_lazy("of which read from the cache")),
    ("cache_write_tokens", gettext_lazy("of which written to the cache")),
    ("image_input_tokens", gettext_lazy("of which images")),
    ("completion_tokens", gettext_lazy("Completion")),
    ("reasoning_tokens", gettext_lazy("of which reasoning")),
    ("image_output_tokens", gettext_lazy("of which generated images")),
    ("total_tokens", gettext_lazy("Total")),
)
_PARAMETERS: Final = (
    ("temperature", gettext_lazy("Temperature")),
    ("top_p", gettext_lazy("Top p")),
    ("max_tokens", gettext_lazy("Most tokens")),
    ("frequency_penalty", gettext_lazy("Frequency penalty")),
    ("presence_penalty", gettext_lazy("Presence penalty")),
    ("reasoning_effort", gettext_lazy("Reasoning effort")),
    ("reasoning_max_tokens", gettext_lazy("Most reasoning tokens")),
)
_ERROR: Final = (
    ("status", gettext_lazy("Status")),
    ("type", gettext_lazy("Class")),
    ("code", gettext_lazy("Code")),
    ("reason", gettext_lazy("Reason")),
)
_REASONS: Final = {
    "single-provider-available": gettext_lazy("the only provider that could answer"),
    "direct-provider-specified": gettext_lazy("the request named it"),
    "weighted-score": gettext_lazy("the best score"),
    "price-only-no-metrics": gettext_lazy("the best price; no speed was measured yet"),
    "session-affinity": gettext_lazy("the conversation's prompt is cached there"),
    "random-exploration": gettext_lazy("a trial, to measure it"),
    "circuit-probe": gettext_lazy("a trial, to see whether it has recovered"),
    "low-uptime-fallback": gettext_lazy("the named provider's uptime was below 90%"),
}
_STORED: Final = {
    "none": gettext_lazy("no content"),
    "metadata": gettext_lazy("metadata"),
    "retain": gettext_lazy("content"),
}
SCORE_COLUMNS: Final = (
    gettext_lazy("Provider"),
    gettext_lazy("Score"),
    gettext_lazy("USD per million"),
    gettext_lazy("Uptime"),
    gettext_lazy("Latency"),
    gettext_lazy("Speed"),
    gettext_lazy("Circuit"),
)


class Reader(Enum):
    """The audience of the page."""

    TENANT = "tenant"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Link:
    """The name of a row, instead of its id, and the address of its page; empty without one."""

    text: str
    href: str = ""


@dataclass(frozen=True, slots=True)
class Fact:
    """A label and a value; `note` is smaller beside it, `href` links to the value's page.

    `is_number`: the page writes the value's numbers in the reader's locale.
    """

    title: str
    value: str
    note: str = ""
    href: str = ""
    is_number: bool = False


@dataclass(frozen=True, slots=True)
class GuardRun:
    """One question to an outside guard: its name, the texts that it judged, its outcome, duration and cost."""

    name: str
    direction: str
    outcome: str
    duration: str
    cost: str


@dataclass(frozen=True, slots=True)
class CostLine:
    """A part of the cost, with its tokens where it has some, and a note on them."""

    title: str
    tokens: str
    amount: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Medium:
    """An image or audio of the answer. `number` is its place in the row; `is_shown`: a browser can show its bytes."""

    number: int
    kind: str
    note: str
    url: str
    is_stored: bool
    is_shown: bool


@dataclass(frozen=True, slots=True)
class RequestPage:
    """The content of the page. `left_out` is the number of messages that are too many for it."""

    is_failed: bool
    headline: list[Fact]
    failure: list[Fact]
    failure_message: str
    waterfall: Waterfall
    guard_runs: list[GuardRun]
    first_choice: str
    first_reason: str
    scores: list[list[str]]
    dropped_fields: list[str]
    costs: list[CostLine]
    total_cost: str
    extras: list[Fact]
    tokens: list[Fact]
    facts: list[Fact]
    parameters: list[Fact]
    keeps_content: bool
    said: list[Said]
    left_out: int
    media: list[Medium]
    # Offered tools, choice of a tool, response format: title and JSON.
    settings: list[tuple[str, str]]


def row_of(log: RequestLog) -> LogRow:
    """Return a model's row as log queries return rows, with its retention level."""
    row = {name: getattr(log, name) for name in (*COLUMNS, "retention_level")}
    texts = {name: json.dumps(row[name]) for name in JSON_COLUMNS if row[name] is not None}
    return {**row, **texts}


def page_of(row: LogRow, reader: Reader, links: Mapping[str, Link], *, with_content: bool) -> RequestPage:
    """Return a row's page. `links` have the names of the rows behind its ids, by their columns."""
    routing = read_object(row["routing_metadata"])
    reason = str(routing.get("selectionReason") or "")
    said = list(messages_of(row)) if with_content else []
    shown = said[:MAX_MESSAGES]
    return RequestPage(
        is_failed=bool(row["has_error"]),
        headline=_headline(row),
        failure=_failure(row),
        failure_message=as_shown(read_object(row["error_details"]).get("message") or "") if with_content else "",
        waterfall=waterfall_of(routing, row["duration"]),
        guard_runs=[_guard_run(one) for one in objects_in(routing.get("guardrail_calls"))],
        first_choice=str(routing.get("selectedProvider") or ""),
        first_reason=_REASONS.get(reason, reason.replace("-", " ")),
        scores=_scores(routing),
        dropped_fields=[str(one.get("param") or "") for one in objects_in(routing.get("warnings"))],
        costs=_costs(row),
        total_cost=_usd(row["cost"]),
        extras=[Fact(title, _usd(row[column])) for column, title in _NOT_IN_THE_TOTAL if row[column]],
        tokens=[Fact(title, as_text.count(row[column])) for column, title in _TOKENS if row[column] is not None],
        facts=list(_facts(row, reader, links)),
        parameters=[Fact(title, _figure(row[column])) for column, title in _PARAMETERS if row[column] is not None],
        keeps_content=keeps_content(row),
        said=shown + (list(answers_of(row)) if with_content else []),
        left_out=len(said) - len(shown),
        media=list(_media(row)) if with_content else [],
        settings=list(settings_of(row)) if with_content else [],
    )


def _costs(row: LogRow) -> list[CostLine]:
    return [
        CostLine(title, _tokens(row, counted), _usd(row[column]), _reasoning(row) if column == "output_cost" else "")
        for column, title, counted in _COSTS
        if row[column]
    ]


def _tokens(row: LogRow, column: str) -> str:
    return as_text.count(row[column]) if column and row[column] is not None else ""


def _reasoning(row: LogRow) -> str:
    return (
        gettext("of which {count} reasoning").format(count=as_text.count(row["reasoning_tokens"]))
        if row["reasoning_tokens"]
        else ""
    )


def keeps_content(row: LogRow) -> bool:
    """Return whether the row has content of the customer, the model or the provider."""
    texts, values = ("content", "reasoning_content", "refusal"), ("messages", "tool_calls", "media", "tool_results")
    return (
        any(row[name] for name in texts)
        or any(read_json(row[name]) for name in values)
        or bool(read_object(row["error_details"]).get("message"))
    )


def end_of(row: LogRow) -> str:
    """Return the finish reason as text."""
    end = row["unified_finish_reason"] or "unknown"
    return dict(ENDS).get(end, end)


def first_line(row: LogRow) -> str:
    """Return the start of an answer for a list: its first line, else its refusal, called tools or media."""
    calls = [str(call["name"]) for call in objects_in(read_json(row["tool_calls"])) if "name" in call]
    made = [str(one.get("kind")) for one in objects_in(read_json(row["media"]))]
    texts = (
        row["content"],
        row["refusal"],
        gettext("calls {tools}").format(tools=", ".join(calls)) if calls else "",
        ", ".join(made),
    )
    line = next((text.strip() for text in texts if text and text.strip()), "").partition("\n")[0]
    return line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}…"


def _headline(row: LogRow) -> list[Fact]:
    counts = gettext("{prompt_tokens} in, {completion_tokens} out").format(
        prompt_tokens=_count(row["prompt_tokens"]), completion_tokens=_count(row["completion_tokens"])
    )
    first = row["time_to_first_token"]
    return [
        Fact(gettext("Status"), str(row["status_code"] or as_text.NOTHING), end_of(row)),
        Fact(gettext("Cost"), _usd(row["cost"]), gettext("estimated") if row["estimated_cost"] else ""),
        Fact(gettext("Tokens"), _count(row["total_tokens"]), counts),
        Fact(
            gettext("Duration"),
            as_text.milliseconds(row["duration"]),
            ""
            if first is None
            else gettext("first token after {milliseconds}").format(milliseconds=as_text.milliseconds(first)),
        ),
        Fact(gettext("Provider"), row["used_provider"] or pgettext("provider", "none"), _payment(row)),
    ]


def _payment(row: LogRow) -> str:
    mode = row["used_mode"] or row["mode"]
    return gettext("paid from credits") if mode == "credits" else gettext("paid with a provider key")


def _failure(row: LogRow) -> list[Fact]:
    details = read_object(row["error_details"]) if row["has_error"] else {}
    return [Fact(title, str(details[name])) for name, title in _ERROR if details.get(name) is not None]


def _guard_run(call: Mapping[str, Any]) -> GuardRun:
    outcome, error, cost = str(call.get("outcome") or ""), call.get("error"), call.get("cost")
    took = call.get("milliseconds")
    return GuardRun(
        # Rows from before names were stored have the type.
        str(call.get("rule_name") or call.get("type") or ""),
        {"input": gettext("request"), "output": gettext("answer")}.get(str(call.get("direction")), ""),
        f"{outcome}: {error}" if error else outcome,
        as_text.milliseconds(took) if _is_number(took) else as_text.NOTHING,
        _usd(Decimal(str(cost))) if _is_number(cost) else as_text.NOTHING,
    )


def _scores(routing: Mapping[str, Any]) -> list[list[str]]:
    """Return the cells of the table, as in `SCORE_COLUMNS`."""
    return [
        [
            str(line.get("providerId", "")),
            _number(line.get("score"), "{:.2f}"),
            _number(line.get("price"), "${:g}"),
            as_text.percent(line["uptime"]) if _is_number(line.get("uptime")) else as_text.NOTHING,
            as_text.milliseconds(line["latency"]) if _is_number(line.get("latency")) else as_text.NOTHING,
            _number(line.get("throughput"), "{:g} tokens/s"),
            pgettext("circuit breaker", "open")
            if line.get("circuit") == "open"
            else pgettext("circuit breaker", "closed"),
        ]
        for line in objects_in(routing.get("providerScores"))
    ]


def _facts(row: LogRow, reader: Reader, links: Mapping[str, Link]) -> Iterator[Fact]:
    """Yield the facts for a reader; those without a value are left out."""
    for field in _FACTS:
        if reader in field.readers and (link := _value(field.read, row, links)).text:
            yield Fact(field.title, link.text, href=link.href, is_number=field.is_number)
    counts = read_object(row["tool_call_counts"]) if reader is Reader.TENANT else {}
    if counts:
        yield Fact(gettext("Tools called"), ", ".join(f"{name} ({number})" for name, number in counts.items()))
    tags = read_object(row["custom_headers"]) if reader is Reader.TENANT else {}
    for name, value in sorted((str(name), str(value)) for name, value in tags.items()):
        yield Fact(gettext("Tag {name}").format(name=name), value)


def _value(read: str | Callable[[LogRow], str], row: LogRow, links: Mapping[str, Link]) -> Link:
    if not isinstance(read, str):
        return Link(read(row))
    return links.get(read) or Link(str(row[read] or ""))


def _requested(row: LogRow) -> str:
    model, provider = row["requested_model"], row["requested_provider"]
    # Clients may write the provider before the model.
    return f"{provider}/{model}" if provider and not model.startswith(f"{provider}/") else str(model)


def _answered(row: LogRow) -> str:
    return f"{row['used_provider']}/{row['used_model']}" if row["used_provider"] else gettext("no provider")


def _ended(row: LogRow) -> str:
    return f"{end_of(row)} ({row['finish_reason']})" if row["finish_reason"] else end_of(row)


def _yes(column: str) -> Callable[[LogRow], str]:
    return lambda row: "" if row[column] is None else gettext("yes") if row[column] else gettext("no")


@dataclass(frozen=True, slots=True)
class _Field:
    """A fact of the page: its label, the column or the function of the row with its value, and its readers."""

    title: str
    read: str | Callable[[LogRow], str]
    readers: frozenset[Reader] = frozenset(Reader)
    is_number: bool = False


_TENANTS, _OPERATORS = frozenset({Reader.TENANT}), frozenset({Reader.OPERATOR})
# Operators do not see values that the customer chose freely.
_FACTS: Final = (
    _Field(gettext_lazy("Sent"), lambda row: f"{row['created_at']:%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC", _OPERATORS),
    _Field(gettext_lazy("Organization"), "organization_id", _OPERATORS),
    _Field(gettext_lazy("Project"), "project_id"),
    _Field(gettext_lazy("API key"), "api_key_id"),
    _Field(gettext_lazy("Provider key"), "provider_key_id", _OPERATORS),
    _Field(gettext_lazy("Requested model"), _requested),
    _Field(gettext_lazy("Answered by"), _answered),
    _Field(gettext_lazy("Provider's name of the model"), "underlying_model"),
    _Field(gettext_lazy("Finish reason"), _ended),
    _Field(gettext_lazy("Endpoint"), lambda row: row["route"].replace("_", " ")),
    _Field(gettext_lazy("Streamed"), _yes("streamed")),
    _Field(gettext_lazy("From the response cache"), _yes("cached")),
    _Field(gettext_lazy("Client left"), _yes("canceled")),
    _Field(gettext_lazy("Source"), "source", _TENANTS),
    _Field(gettext_lazy("Session"), "session_id", _TENANTS),
    _Field(gettext_lazy("Client"), "user_agent", _TENANTS),
    _Field(
        gettext_lazy("Response size"),
        lambda row: gettext("{count} bytes").format(count=as_text.count(row["response_size"])),
        is_number=True,
    ),
    _Field(gettext_lazy("Stored"), lambda row: _STORED[row["retention_level"]], _OPERATORS),
    _Field(gettext_lazy("Request id"), "request_id"),
    _Field(gettext_lazy("Log id"), "id"),
)


def _media(row: LogRow) -> Iterator[Medium]:
    for number, one in enumerate(objects_in(read_json(row["media"]))):
        content_type, size = str(one.get("contentType") or ""), one.get("size")
        notes = [
            content_type,
            gettext("{count} bytes").format(count=as_text.count(size)) if isinstance(size, int) else "",
            one.get("transcript"),
        ]
        yield Medium(
            number=number,
            kind=str(one.get("kind")),
            note=" · ".join(str(note) for note in notes if note),
            url=str(one.get("url") or ""),
            is_stored=bool(one.get("stored")),
            is_shown=content_type in SHOWN_TYPES,
        )


def _usd(amount: Any) -> str:
    return as_text.NOTHING if amount is None else as_text.exact_usd(amount)


def _count(number: int | None) -> str:
    return as_text.NOTHING if number is None else as_text.count(number)


def _figure(value: Any) -> str:
    return f"{Decimal(str(value)):,f}" if _is_number(value) else str(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _number(value: Any, form: str) -> str:
    return form.format(value) if _is_number(value) else as_text.NOTHING
