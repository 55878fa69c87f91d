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

from apps.kernel.pages import number_formats as as_text
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
    ("completed", "Completed"),
    ("tool_calls", "Asked for tools"),
    ("length_limit", "Cut off at its limit"),
    ("content_filter", "Content filter"),
    ("client_error", "Request refused"),
    ("upstream_error", "Provider failed"),
    ("gateway_error", "Gateway failed"),
    ("canceled", "Client left"),
    ("unknown", "Unknown"),
)
# Column of a cost, its label, and the column with its tokens.
_COSTS: Final = (
    ("input_cost", "Input", "prompt_tokens"),
    ("cached_input_cost", "Cached input", "cached_tokens"),
    ("cache_write_cost", "Written to the cache", "cache_write_tokens"),
    ("output_cost", "Output", "completion_tokens"),
    ("image_input_cost", "Images in", "image_input_tokens"),
    ("image_output_cost", "Images out", "image_output_tokens"),
    ("request_cost", "Per request", ""),
    ("web_search_cost", "Web search", ""),
)
_NOT_IN_THE_TOTAL: Final = (
    ("discount_savings", "Saved by discounts"),
    ("data_storage_cost", "Log storage (not in the total)"),
)
_TOKENS: Final = (
    ("prompt_tokens", "Prompt"),
    ("cached_tokens", "of which read from the cache"),
    ("cache_write_tokens", "of which written to the cache"),
    ("image_input_tokens", "of which images"),
    ("completion_tokens", "Completion"),
    ("reasoning_tokens", "of which reasoning"),
    ("image_output_tokens", "of which generated images"),
    ("total_tokens", "Total"),
)
_PARAMETERS: Final = (
    ("temperature", "Temperature"),
    ("top_p", "Top p"),
    ("max_tokens", "Most tokens"),
    ("frequency_penalty", "Frequency penalty"),
    ("presence_penalty", "Presence penalty"),
    ("reasoning_effort", "Reasoning effort"),
    ("reasoning_max_tokens", "Most reasoning tokens"),
)
_ERROR: Final = (("status", "Status"), ("type", "Class"), ("code", "Code"), ("reason", "Reason"))
_REASONS: Final = {
    "single-provider-available": "the only provider that could answer",
    "direct-provider-specified": "the request named it",
    "weighted-score": "the best score",
    "price-only-no-metrics": "the best price; no speed was measured yet",
    "session-affinity": "the conversation's prompt is cached there",
    "random-exploration": "a trial, to measure it",
    "circuit-probe": "a trial, to see whether it has recovered",
    "low-uptime-fallback": "the named provider's uptime was below 90 %",
}
_STORED: Final = {"none": "no content", "metadata": "metadata", "retain": "content"}
SCORE_COLUMNS: Final = ("Provider", "Score", "USD per million", "Uptime", "Latency", "Speed", "Circuit")


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
    return f"of which {as_text.count(row['reasoning_tokens'])} reasoning" if row["reasoning_tokens"] else ""


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
    texts = (row["content"], row["refusal"], f"calls {', '.join(calls)}" if calls else "", ", ".join(made))
    line = next((text.strip() for text in texts if text and text.strip()), "").partition("\n")[0]
    return line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}…"


def _headline(row: LogRow) -> list[Fact]:
    counts = f"{_count(row['prompt_tokens'])} in, {_count(row['completion_tokens'])} out"
    first = row["time_to_first_token"]
    return [
        Fact("Status", str(row["status_code"] or as_text.NOTHING), end_of(row)),
        Fact("Cost", _usd(row["cost"]), "estimated" if row["estimated_cost"] else ""),
        Fact("Tokens", _count(row["total_tokens"]), counts),
        Fact(
            "Duration",
            as_text.milliseconds(row["duration"]),
            "" if first is None else f"first token after {as_text.milliseconds(first)}",
        ),
        Fact("Provider", row["used_provider"] or "none", _payment(row)),
    ]


def _payment(row: LogRow) -> str:
    mode = row["used_mode"] or row["mode"]
    return "paid from credits" if mode == "credits" else "paid with a provider key"


def _failure(row: LogRow) -> list[Fact]:
    details = read_object(row["error_details"]) if row["has_error"] else {}
    return [Fact(title, str(details[name])) for name, title in _ERROR if details.get(name) is not None]


def _guard_run(call: Mapping[str, Any]) -> GuardRun:
    outcome, error, cost = str(call.get("outcome") or ""), call.get("error"), call.get("cost")
    took = call.get("milliseconds")
    return GuardRun(
        # Rows from before names were stored have the type.
        str(call.get("rule_name") or call.get("type") or ""),
        {"input": "request", "output": "answer"}.get(str(call.get("direction")), ""),
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
            _number(line.get("uptime"), "{:g}%"),
            as_text.milliseconds(line["latency"]) if _is_number(line.get("latency")) else as_text.NOTHING,
            _number(line.get("throughput"), "{:g} tokens/s"),
            "open" if line.get("circuit") == "open" else "closed",
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
        yield Fact("Tools called", ", ".join(f"{name} ({number})" for name, number in counts.items()))
    tags = read_object(row["custom_headers"]) if reader is Reader.TENANT else {}
    for name, value in sorted((str(name), str(value)) for name, value in tags.items()):
        yield Fact(f"Tag {name}", value)


def _value(read: str | Callable[[LogRow], str], row: LogRow, links: Mapping[str, Link]) -> Link:
    if not isinstance(read, str):
        return Link(read(row))
    return links.get(read) or Link(str(row[read] or ""))


def _requested(row: LogRow) -> str:
    model, provider = row["requested_model"], row["requested_provider"]
    # Clients may write the provider before the model.
    return f"{provider}/{model}" if provider and not model.startswith(f"{provider}/") else str(model)


def _answered(row: LogRow) -> str:
    return f"{row['used_provider']}/{row['used_model']}" if row["used_provider"] else "no provider"


def _ended(row: LogRow) -> str:
    return f"{end_of(row)} ({row['finish_reason']})" if row["finish_reason"] else end_of(row)


def _yes(column: str) -> Callable[[LogRow], str]:
    return lambda row: "" if row[column] is None else "yes" if row[column] else "no"


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
    _Field("Sent", lambda row: f"{row['created_at']:%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC", _OPERATORS),
    _Field("Organization", "organization_id", _OPERATORS),
    _Field("Project", "project_id"),
    _Field("API key", "api_key_id"),
    _Field("Provider key", "provider_key_id", _OPERATORS),
    _Field("Requested model", _requested),
    _Field("Answered by", _answered),
    _Field("Provider's name of the model", "underlying_model"),
    _Field("Finish reason", _ended),
    _Field("Endpoint", lambda row: row["route"].replace("_", " ")),
    _Field("Streamed", _yes("streamed")),
    _Field("From the response cache", _yes("cached")),
    _Field("Client left", _yes("canceled")),
    _Field("Source", "source", _TENANTS),
    _Field("Session", "session_id", _TENANTS),
    _Field("Client", "user_agent", _TENANTS),
    _Field("Response size", lambda row: f"{as_text.count(row['response_size'])} bytes", is_number=True),
    _Field("Stored", lambda row: _STORED[row["retention_level"]], _OPERATORS),
    _Field("Request id", "request_id"),
    _Field("Log id", "id"),
)


def _media(row: LogRow) -> Iterator[Medium]:
    for number, one in enumerate(objects_in(read_json(row["media"]))):
        content_type, size = str(one.get("contentType") or ""), one.get("size")
        notes = [content_type, f"{as_text.count(size)} bytes" if isinstance(size, int) else "", one.get("transcript")]
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
