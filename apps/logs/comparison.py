"""Comparison of two logged requests: figures side by side, and the lines of prompts and answers that differ. Pure.

Equal messages at the begin and at the end are only counted: two requests of one conversation share most of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Final

from django.utils.translation import gettext, pgettext

from apps.kernel.pages import number_formats as as_text
from apps.kernel.pages.languages import gettext_lazy
from apps.logs.conversation import Said, answers_of, messages_of
from apps.logs.query import LogRow
from apps.logs.request_page import end_of

# Lines of each side that are compared, and equal lines around a difference.
MAX_LINES: Final = 1_000
_CONTEXT: Final = 2


@dataclass(frozen=True, slots=True)
class Pair:
    """A fact of both requests; `change` is the second's less the first's, empty where they are no numbers or equal."""

    title: str
    first: str
    second: str
    change: str = ""

    @property
    def is_equal(self) -> bool:
        """Whether both requests have the same."""
        return self.first == self.second


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a difference: `same`, `removed` (of the first alone), `added` (of the second alone), or `skipped`."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class RequestComparison:
    """Two requests side by side. `equal_messages` are those before the first difference and after the last one.

    `is_cut`: there are more lines than `MAX_LINES`; only the first ones are compared.
    """

    pairs: list[Pair]
    prompt: list[DiffLine]
    answer: list[DiffLine]
    equal_messages: int
    is_cut: bool
    has_content: bool


def compare(first: LogRow, second: LogRow) -> RequestComparison:
    """Return how two rows differ."""
    ours, theirs = ([*messages_of(row)] for row in (first, second))
    head = _equal_at_begin(ours, theirs)
    tail = _equal_at_begin(ours[head:][::-1], theirs[head:][::-1])
    prompts = [_lines_of(said[head : len(said) - tail]) for said in (ours, theirs)]
    answers = [_lines_of([*answers_of(row)]) for row in (first, second)]
    return RequestComparison(
        pairs=list(_pairs(first, second)),
        prompt=_differences(*prompts),
        answer=_differences(*answers),
        equal_messages=head + tail,
        is_cut=any(len(lines) > MAX_LINES for lines in (*prompts, *answers)),
        has_content=bool(ours or theirs or any(answers)),
    )


def _equal_at_begin(ours: Sequence[Said], theirs: Sequence[Said]) -> int:
    """Return how many messages are equal before the first that differs."""
    pairs = zip(ours, theirs, strict=False)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(ours), len(theirs)))


def _lines_of(said: Sequence[Said]) -> list[str]:
    """Return messages as lines: each one's role, then its pieces."""
    lines = []
    for message in said:
        lines.append(f"{message.title}:")
        for kind, text in message.pieces:
            lines += [] if kind == "text" else [f"[{kind}]"]
            lines += text.split("\n")
    return lines


def _differences(ours: list[str], theirs: list[str]) -> list[DiffLine]:
    """Return the lines that differ, with some equal ones around them; none where all are equal."""
    ours, theirs = ours[:MAX_LINES], theirs[:MAX_LINES]
    found, end = list[DiffLine](), 0
    for group in SequenceMatcher(None, ours, theirs).get_grouped_opcodes(_CONTEXT):
        skipped = group[0][1] - end
        found += (
            [DiffLine("skipped", gettext("{count} equal lines").format(count=as_text.count(skipped)))]
            if skipped
            else []
        )
        end = group[-1][2]
        for kind, first, until, other, other_until in group:
            if kind == "equal":
                found += [DiffLine("same", text) for text in ours[first:until]]
                continue
            found += [DiffLine("removed", text) for text in ours[first:until]]
            found += [DiffLine("added", text) for text in theirs[other:other_until]]
    return found


def _pairs(first: LogRow, second: LogRow) -> Iterator[Pair]:
    for title, text_of in _TEXTS:
        yield Pair(title, text_of(first), text_of(second))
    for title, column, write in _FIGURES:
        one, other = first[column], second[column]
        if one is not None or other is not None:
            yield Pair(title, _written(one, write), _written(other, write), _change(one, other, write))


def _written(value: Any, write: Callable[[Any], str]) -> str:
    return as_text.NOTHING if value is None else write(value)


def _change(one: Any, other: Any, write: Callable[[Any], str]) -> str:
    """Return the difference of two numbers with its share of the first one."""
    if one is None or other is None or one == other:
        return ""
    difference = other - one
    sign = "+" if difference > 0 else "\N{MINUS SIGN}"
    share = f" ({sign}{as_text.percent(float(100 * abs(difference) / one))})" if one else ""
    return f"{sign}{write(abs(difference))}{share}"


_TEXTS: Final[tuple[tuple[str, Callable[[LogRow], str]], ...]] = (
    (gettext_lazy("Model"), lambda row: str(row["used_model"] or row["requested_model"])),
    (gettext_lazy("Provider"), lambda row: str(row["used_provider"] or pgettext("provider", "none"))),
    (gettext_lazy("Status"), lambda row: f"{row['status_code'] or as_text.NOTHING} {end_of(row)}"),
)
_FIGURES: Final[tuple[tuple[str, str, Callable[[Any], str]], ...]] = (
    (gettext_lazy("Cost"), "cost", as_text.exact_usd),
    (gettext_lazy("Duration"), "duration", as_text.milliseconds),
    (gettext_lazy("First token"), "time_to_first_token", as_text.milliseconds),
    (gettext_lazy("Prompt tokens"), "prompt_tokens", as_text.count),
    (gettext_lazy("of which cached"), "cached_tokens", as_text.count),
    (gettext_lazy("Completion tokens"), "completion_tokens", as_text.count),
    (gettext_lazy("of which reasoning"), "reasoning_tokens", as_text.count),
    (gettext_lazy("Temperature"), "temperature", str),
    (gettext_lazy("Most tokens"), "max_tokens", as_text.count),
)
