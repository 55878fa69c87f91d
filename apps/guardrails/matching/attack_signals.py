"""Weighted attack signals: patterns of a table, searched at once, that are near one another and weigh enough."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from apps.guardrails.findings.scan_types import EXTERNAL_ROLES, OPERATOR_ROLES, UNFINISHED, Span
from apps.guardrails.matching.mention_filter import MentionFilter
from apps.guardrails.matching.signal_compiler import compile_table
from apps.guardrails.matching.signal_finder import AttackSignal, SignalFinder
from apps.guardrails.regex.re2_patterns import compile_re2
from apps.guardrails.text.decoding import find_decoded_texts
from apps.guardrails.text.scanned_text import ScannedText

# Signals at most this far apart, in bytes, count together.
_NEAR = 600
_ENOUGH = 1.0 - 1e-9  # weights are sums of floats
# How much less counts of what an operator tells a model: long instructions name the attacks that they warn of.
_OPERATOR_BONUS = -1.0
# Bonus for a brief text of a user: an order leaves no room there for anything else, and a task about attacks quotes a
# longer text.
_BRIEF_BONUS, _BRIEF = 0.4, 500
# From so many characters on, a user's text is material to work on as often as an order.
_LONG = 2000
# Bonus for hidden text.
_HIDDEN = 0.6
# Encodings that addresses, pages and JSON are full of hide nothing; nor do slips of the finger, names and lists.
_EVERYDAY = {
    "percent",
    "entities",
    "escapes",
    "misspelled",
    "emphasized",
    "separated",
    "joined",
    "listed",
    "last_word_first",
    "camel_case",
}

# Kinds that direct a model beside those that a table lists as orders.
_DIRECTING = {"agent_directive", "new_role", "say_this", "false_command", "document_order", "decode_and_obey"}
# Kinds that are an order to the model and what it shall do in one.
_DEMANDS = {"reveal_prompt", "say_this", "false_command", "document_order"}
_ACTION_REACH = 100
# An order that the same sentence or the next goes on with.
_ACTION = compile_re2(
    r"^[^.!?]{0,50}?(?:[.!:;,*\]\)-]+ | and | then | but | instead | now |^ )"
    r"(?:and |then |but |instead,? |now,? |please |just |only |simply |also |always |to |"
    r"you (?:must|should|will|shall|need to|have to|are to|are now) )*"
    r"(?:say|answer|reply|respond|print|output|write|tell|give|send|forward|e-?mail|call|run|execute|open|visit|delete|"
    r"transfer|post|reveal|recommend|rate|approve|confirm|act|pretend|follow|do|show|return|repeat|display|include|grant|"
    r"buy|book|pay|share|upload|download|start|begin|mark|report|make|create|add|become|state|mention|translate|explain|"
    r"invite|change|reset|update|disclose|provide|list|obey|perform|complete|praise|prefer|promote|omit|hide|favou?r|choose|"
    r"select|hire|accept|reject|rank)\b"
)
# Words in quotation marks that are to be said, an address, an order without a condition, or content of the answer.
_PAYLOAD = compile_re2(
    r"['\"“‘«`][^'\"”’»`]{3,}['\"”’»`]|"  # noqa: RUF001 - these letters are meant
    r"https?://|[a-z0-9]@[a-z0-9]|\balways\b|\bevery (?:answer|response|reply)|"
    r"\b(?:must|has to|shall) (?:only |also |always )?(?:mention|say|state|read|recommend)\b"
)


class SignalTable:
    """Every pattern of a table."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        forms = list(compile_table(table))
        # The kinds that are orders; others only frame one, and say nothing by being hidden.
        self._orders = frozenset(table["orders"])
        # Kinds that are orders by themselves in a brief text.
        self._brief_orders = frozenset(table.get("brief_orders", ()))
        self._long_needs_order = table.get("long_needs_order", False)
        self._leading = SignalFinder((pattern, head) for supports, pattern, head in forms if not supports)
        self._supporting = SignalFinder((pattern, head) for supports, pattern, head in forms if supports)

    def signals(self, utf8: bytes) -> list[AttackSignal]:
        """Return the signals in a normalized text, from left to right; those that only support, only near others."""
        signals = list(self._leading.signals(utf8, [(0, len(utf8))]))
        signals += self._supporting.signals(utf8, list(_around(signals, len(utf8))))
        return sorted(signals, key=lambda signal: signal.start)

    def find(
        self, utf8: bytes, *, seen: bytes = b"", bonus: float = 0.0, brief: bool = False, external: bool = False
    ) -> list[AttackSignal]:
        """Return groups of signals near one another whose kinds together, with `bonus`, weigh 1 or more.

        Signals whose words are also in `seen` are left out. Each result spans the signals of its group and has the
        kind of the heaviest one; none overlap. In a long text, a table may want an order in each group. In an
        `external` text, which was not written for the model, a group needs an order, and a second signal or words that
        ask for an action.
        """
        fresh = functools.cache(lambda words: words not in seen)
        signals = [signal for signal in self.signals(utf8) if not seen or fresh(utf8[signal.start : signal.end])]
        # Mentions are judged last: most signals stand alone, and need no second look.
        suspects = {signal for group in self._worthy(signals, bonus, brief) for signal in group}
        mentions = MentionFilter(utf8)
        meant = [
            signal
            for signal in (_weigh_by_mention(signal, mentions) for signal in signals if signal in suspects)
            if signal is not None
        ]
        found: list[AttackSignal] = []
        for group in self._worthy(meant, bonus, brief):
            if external and not self._is_directed(group, utf8):
                continue
            if self._long_needs_order and len(utf8) > _LONG and not self._has_order(group):
                continue
            name = max(group, key=lambda signal: signal.weight).kind
            start, end = min(signal.start for signal in group), max(signal.end for signal in group)
            if found and start <= found[-1].end:
                found[-1] = AttackSignal(min(start, found[-1].start), max(end, found[-1].end), found[-1].kind, 1.0)
            else:
                found.append(AttackSignal(start, end, name, 1.0))
        return found

    def _has_order(self, group: list[AttackSignal]) -> bool:
        """Tell whether one of several signals is an order in full: neither reported speech nor a name."""
        if len(group) == 1:
            return True
        return any(
            signal.pattern is None
            or (
                (signal.kind in self._orders or signal.kind in _DIRECTING)
                and signal.weight >= signal.pattern.weight
                and not signal.pattern.noun
            )
            for signal in group
        )

    def _is_directed(self, group: list[AttackSignal], utf8: bytes) -> bool:
        """Tell whether signals order a model to do something, rather than being a phrase that programs and their
        documents have as well."""
        if any(signal.kind == UNFINISHED for signal in group):
            return True
        if len(group) > 1:
            return any(signal.kind in self._orders or signal.kind in _DIRECTING for signal in group)
        [signal] = group
        if signal.kind in _DEMANDS:
            return True
        return (signal.pattern is not None and signal.pattern.alone) or _asks_for_action(utf8, signal)

    def spans(
        self, text: ScannedText, *, bonus: float = 0.0, brief: bool = False, external: bool = False
    ) -> list[Span]:
        """Return the spans in a text and in its decoded forms; `bonus`, `external`: see `find`."""
        spans = [
            Span(*text.normalized_byte_origin(signal.start, signal.end), signal.kind)
            for signal in self.find(text.normalized_utf8, bonus=bonus, brief=brief, external=external)
        ]
        for view in find_decoded_texts(text):
            hidden = 0.0 if view.encoding in _EVERYDAY else _HIDDEN
            found = self.find(
                view.text.normalized_utf8,
                seen=text.normalized_utf8,
                bonus=bonus + hidden,
                brief=brief,
                external=external and view.encoding in _EVERYDAY,
            )
            spans += [
                Span(
                    *view.origin_of(*view.text.normalized_byte_origin(one.start, one.end)),
                    f"{view.encoding}:{one.kind}",
                )
                for one in (found if view.origin is not None else found[:1])
            ]
        return spans

    def _worthy(self, signals: list[AttackSignal], bonus: float, brief: bool) -> Iterator[list[AttackSignal]]:
        """Yield, for each signal whose neighborhood weighs enough, the signals in it, one of each kind."""
        latest: dict[str, AttackSignal] = {}
        for signal in signals:
            former = latest.get(signal.kind)
            if former is None or former.weight <= signal.weight or signal.start - former.start > _NEAR:
                latest[signal.kind] = signal
            by_head = {
                other.head: other
                for other in sorted(latest.values(), key=lambda other: other.weight)
                if signal.start - other.start <= _NEAR
            }
            worth = sum(other.weight for other in by_head.values())
            # Less counts of everything; more only of orders, as nothing else is said by being hidden or out of place.
            if bonus < 0 or any(other.kind in self._orders for other in by_head.values()):
                worth += bonus
            if brief and any(other.kind in self._brief_orders for other in by_head.values()):
                worth += _BRIEF_BONUS
            if worth > _ENOUGH or signal.kind == UNFINISHED:
                yield list(by_head.values())


def load_signal_table(*paths: Path) -> SignalTable:
    """Return the table that files make together, compiled; raises where one is not well formed.

    Words of one name and language are those of the first file that has them.
    """
    tables = [tomllib.loads(path.read_text(encoding="utf-8")) for path in paths]
    words: dict[str, dict[str, str]] = {}
    for table in reversed(tables):
        for language, meanings in table["words"].items():
            words[language] = {**words.get(language, {}), **meanings}
    return SignalTable(
        {
            "orders": [kind for table in tables for kind in table["orders"]],
            "brief_orders": [kind for table in tables for kind in table.get("brief_orders", ())],
            "long_needs_order": any(table.get("long_needs_order", False) for table in tables),
            "words": words,
            "shape": [shape for table in tables for shape in table["shape"]],
        }
    )


def find_by_speaker(table: SignalTable, text: ScannedText, role: str) -> list[Span]:
    """Return the attacks in a text, as its role and length let it be read."""
    bonus = _OPERATOR_BONUS if role in OPERATOR_ROLES else 0.0
    brief = role == "user" and len(text.raw) <= _BRIEF
    return table.spans(text, bonus=bonus, brief=brief, external=role in EXTERNAL_ROLES)


def _asks_for_action(utf8: bytes, signal: AttackSignal) -> bool:
    """Tell whether a lone order is followed by what to do instead, or has the words that are to be said."""
    return bool(
        _ACTION.search(utf8[signal.end : signal.end + _ACTION_REACH])
        or _PAYLOAD.search(utf8[max(0, signal.start - _ACTION_REACH // 2) : signal.end])
    )


def _weigh_by_mention(signal: AttackSignal, mentions: MentionFilter) -> AttackSignal | None:
    """Return the signal with its weight in its context; None if it is only mentioned."""
    if signal.pattern is None or signal.pattern.plain:
        return signal
    counts = mentions.weight_of(signal.start, signal.end, order=signal.pattern.imperative)
    return msgspec.structs.replace(signal, weight=signal.weight * counts) if counts else None


def _around(signals: list[AttackSignal], size: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a text that are near a signal, none of them twice."""
    start = end = 0
    for signal in signals:
        if signal.head - _NEAR > end:
            if end > start:
                yield start, end
            start = signal.head - _NEAR
        end = min(size, max(end, signal.end + _NEAR))
    if end > start:
        yield start, end
