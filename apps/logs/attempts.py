"""The attempts of a logged request as a waterfall: calls of providers in time, with the reason for each further one.

Pure. Rows from before times were recorded, and their attempts, have no bars.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeGuard

from django.utils.translation import gettext

from apps.kernel.pages import number_formats as as_text
from apps.kernel.pages.languages import gettext_lazy
from apps.logs.query import objects_in

# Words for a part of an attempt, and the moments between which it is.
_STEPS = (
    (gettext_lazy("connected in {time}"), "connect_start_ms", "connect_end_ms"),
    (gettext_lazy("first byte after {time}"), "start_ms", "first_byte_ms"),
    (gettext_lazy("first content after {time}"), "start_ms", "first_content_ms"),
    (gettext_lazy("took {time}"), "start_ms", "end_ms"),
)
# The least share of the request that a bar takes: a shorter call would not be seen.
_LEAST_SHARE = 0.005


@dataclass(frozen=True, slots=True)
class AttemptBar:
    """Places and widths of an attempt's bar as percentages of the request: waiting, then answering.

    Within the wait, a new connection is made from `connect` on; both are empty where an open one was used.
    """

    start: str
    waiting: str
    content: str
    answering: str
    connect: str = ""
    connecting: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One call of a provider, in order of its start.

    `state` is `ok`, `bad`, or `slower`: closed, because another answered first or the client left. `reason` says why a
    further call was made.
    """

    provider: str
    model: str
    state: str
    outcome: str
    score: str
    reason: str = ""
    times: str = ""
    bar: AttemptBar | None = None


@dataclass(frozen=True, slots=True)
class Waterfall:
    """The attempts, and the gateway's own time before the first of them; empty where no times were recorded."""

    attempts: list[Attempt]
    before: str = ""


def waterfall_of(routing: Mapping[str, Any], duration: int | None) -> Waterfall:
    """Return the attempts of a row's routing metadata; `duration` is the request's, in milliseconds."""
    lines = objects_in(routing.get("routing"))
    if not lines:
        return Waterfall([])
    is_timed = all(_is_number(line.get(name)) for line in lines for name in ("start_ms", "end_ms"))
    if is_timed:
        lines = sorted(lines, key=lambda line: line["start_ms"])
    scores = {str(line.get("providerId")): line.get("score") for line in objects_in(routing.get("providerScores"))}
    reasons = ["", *(_reason(before, line) for before, line in pairwise(lines))]
    whole = max([duration or 0, *(line["end_ms"] for line in lines)]) if is_timed else 0
    attempts = [_attempt(line, scores, reason, whole) for line, reason in zip(lines, reasons, strict=True)]
    return Waterfall(attempts, as_text.milliseconds(lines[0]["start_ms"]) if is_timed else "")


def _attempt(line: Mapping[str, Any], scores: Mapping[str, Any], reason: str, whole: int) -> Attempt:
    provider, score = str(line.get("provider", "")), scores.get(str(line.get("provider", "")))
    state, words = _outcome(line)
    return Attempt(
        provider=provider,
        model=str(line.get("model", "")),
        state=state,
        outcome=", ".join(words),
        score=f"{score:.2f}" if _is_number(score) else as_text.NOTHING,
        reason=reason,
        times=_times(line) if whole else "",
        bar=_bar(line, whole) if whole else None,
    )


def _bar(line: Mapping[str, Any], whole: int) -> AttemptBar:
    bar = bar_of(line["start_ms"], line.get("first_content_ms"), line["end_ms"], whole)
    began, connected = line.get("connect_start_ms"), line.get("connect_end_ms", line["end_ms"])
    if not _is_number(began) or not _is_number(connected):
        return bar
    return replace(bar, connect=_percent(began, whole), connecting=_percent(connected - began, whole))


def _outcome(line: Mapping[str, Any]) -> tuple[str, Sequence[str]]:
    error = str(line.get("error_type", "failed"))
    status = [] if line.get("status_code") is None else [f"HTTP {line['status_code']}"]
    if line.get("succeeded") is True:
        return "ok", [gettext("answered"), *status]
    if error == "hedge_lost":
        return "slower", [gettext("slower, closed")]
    if error == "canceled":
        return "slower", [gettext("closed, the client left")]
    return "bad", [gettext("failed"), *status, error.replace("_", " ")]


def _reason(before: Mapping[str, Any], line: Mapping[str, Any]) -> str:
    """Return why an attempt was made after another one; empty for one of several calls for one answer."""
    if line.get("choice"):
        return ""
    provider = str(before.get("provider", ""))
    started, ended = line.get("start_ms"), before.get("end_ms")
    if _is_number(started) and _is_number(ended) and started < ended:
        return gettext("Hedge: {provider} had not answered yet").format(provider=provider)
    why = f"{provider} {', '.join(_outcome(before)[1])}"
    if (before.get("used_model"), before.get("provider")) == (line.get("used_model"), line.get("provider")):
        return gettext("Retry: {reason}").format(reason=why)
    is_other_model = before.get("used_model") != line.get("used_model")
    words = gettext("Fallback model: {reason}") if is_other_model else gettext("Fallback: {reason}")
    return words.format(reason=why)


def _times(line: Mapping[str, Any]) -> str:
    start = line["start_ms"]
    spans = [(words, line.get(since), line.get(until)) for words, since, until in _STEPS]
    parts = [
        words.format(time=as_text.milliseconds(until - since))
        for words, since, until in spans
        if _is_number(since) and _is_number(until)
    ]
    return ", ".join([gettext("called at {time}").format(time=as_text.milliseconds(start)), *parts])


def bar_of(start: float, content: float | None, end: float, whole: float) -> AttemptBar:
    """Return the bar of a call from `start` to `end` that began to answer at `content`, within `whole`."""
    content = end if content is None else min(max(content, start), end)
    least = whole * _LEAST_SHARE
    if end - start < least:
        share = (content - start) / (end - start) if end > start else 1
        start = min(start, whole - least)
        content, end = start + share * least, start + least
    return AttemptBar(
        start=_percent(start, whole),
        waiting=_percent(content - start, whole),
        content=_percent(content, whole),
        answering=_percent(end - content, whole),
    )


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.2f}%" if whole else "0%"


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
