"""Reasoning efforts: the known effort nearest to the one that a request asks for."""

from __future__ import annotations

from collections.abc import Collection

from apps.gateway.canonical.chat import Chat, Effort, Target
from apps.gateway.dialects.adapting.unsupported_fields import note_dropped

_ORDER: tuple[Effort, ...] = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
# The tokens of thinking up to which a budget is rather this effort than the next one.
_BUDGETS: tuple[tuple[int, Effort], ...] = (
    (0, "none"),
    (1_024, "minimal"),
    (4_096, "low"),
    (16_384, "medium"),
    (40_000, "high"),
)


def nearest_effort(effort: Effort, known: Collection[str]) -> Effort:
    """Return the known effort next to the one asked for, the lesser of two that are equally near."""
    places = [place for place, name in enumerate(_ORDER) if name in known]
    if not places or effort in known:
        return effort
    asked = _ORDER.index(effort)
    return _ORDER[min(places, key=lambda place: (abs(place - asked), place))]


def effort_of(budget: int) -> Effort:
    """Return about the effort that a budget of tokens stands for."""
    return next((effort for most, effort in _BUDGETS if budget <= most), "xhigh")


def nearest_known_effort(effort: Effort, chat: Chat, target: Target) -> Effort:
    """Return an effort that the target's model supports; note it if it differs from the requested one."""
    found = nearest_effort(effort, target.facts.get("reasoning_efforts", ()))
    if found != effort:
        note_effort(effort, found, chat, target)
    return found


def note_effort(asked: Effort, sent: Effort, chat: Chat, target: Target) -> None:
    """Note that another effort is sent than the one asked for."""
    note_dropped(chat, target, field_of(asked, chat), f"the model does not know {asked}: sent as {sent}")


def field_of(asked: Effort, chat: Chat) -> str:
    """Return the field by which a chat asks for an effort."""
    return "effort" if chat.effort == asked else "reasoning_effort"
