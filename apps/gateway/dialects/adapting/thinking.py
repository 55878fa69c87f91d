"""Thinking across formats: the known effort nearest to the one that a request asks for, and signatures of thinking.

A client that keeps nothing but ids brings a call's signature back in the id, joined to it with characters that every
format allows; a format that did not make the signature takes the bare id.

Some makers sign thinking for the account that asked: another account, though it serves the same models, refuses a whole
request for it. Such signatures bear the provider's id behind their format. Others are taken wherever their maker's
models are served.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Collection
from typing import Any, Final

from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, Effort, Message, Part, Reasoning, Target
from apps.gateway.canonical.events import ReasoningDelta
from apps.gateway.dialects.adapting.unsupported_fields import message_path, note_dropped

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
    """Return the known effort next to the one asked for, the lesser of two that are equally near.

    A request to think is not answered without thinking as long as the model knows any other effort than `none`.
    """
    places = [place for place, name in enumerate(_ORDER) if name in known]
    if not places or effort in known:
        return effort
    places = [place for place in places if _ORDER[place] != "none"] or places
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


_SEPARATOR = "__sealed__"
# Where Google's own OpenAI format has the signature of a call.
SIGNATURE_FIELD: Final = "extra_content"


def join_signature(call_id: str, signature: str) -> str:
    """Return an id that carries a signature."""
    return f"{call_id}{_SEPARATOR}{urlsafe_b64encode(signature.encode()).decode().rstrip('=')}"


def split_signature(call_id: str) -> tuple[str, str | None]:
    """Return the bare id and the signature that it carried, if any. An id that the gateway did not make is bare."""
    bare, separator, encoded = call_id.partition(_SEPARATOR)
    if not separator:
        return call_id, None
    try:
        return bare, urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    except (Error, ValueError):
        return call_id, None


def stated_signature(extra: dict[str, Any] | None) -> str | None:
    """Return the signature in a call's `extra_content.google.thought_signature`, None where there is none."""
    found: Any = extra
    for name in (SIGNATURE_FIELD, "google", "thought_signature"):
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, str) and found else None


def state_signature(signature: str) -> dict[str, Any]:
    """Return the fields of a call that state its signature."""
    return {SIGNATURE_FIELD: {"google": {"thought_signature": signature}}}


# The formats of thinking that is signed for one account, also when a cloud resells the model.
ACCOUNT_BOUND_FORMATS: Final = frozenset({"openai-responses-v1", "azure-openai-responses-v1", "xai-responses-v1"})
_BETWEEN = "@"


def client_signature_format(form: str | None, provider_id: str) -> str | None:
    """Return the name that thinking of this format has for clients when it was made at the provider."""
    return f"{form}{_BETWEEN}{provider_id}" if form in ACCOUNT_BOUND_FORMATS else form


def add_signature_owner(thought: ReasoningDelta, provider_id: str) -> ReasoningDelta:
    """Return a thought of an answer; one that is signed for one account says whose it is."""
    return (
        replace(thought, format=client_signature_format(thought.format, provider_id))
        if thought.format in ACCOUNT_BOUND_FORMATS
        else thought
    )


def remove_signature_owner(chat: Chat, provider_id: str, target: Target) -> Chat:
    """Return the chat for one provider: its own signatures as it made them, and none that are another's.

    Thinking under another provider's signature keeps only its text, where the format has a field for it; else the
    drop is noted.
    """
    if Reasoning not in chat.kinds or not any(_is_owned(part) for message in chat.messages for part in message.parts):
        return chat
    messages = [
        _message(message, message_path(chat, at), provider_id, target) for at, message in enumerate(chat.messages)
    ]
    return replace(chat, messages=messages, source=None)


def _is_owned(part: Part) -> bool:
    return isinstance(part, Reasoning) and part.format is not None and _BETWEEN in part.format


def _message(message: Message, place: str, provider_id: str, target: Target) -> Message:
    if not any(_is_owned(part) for part in message.parts):
        return message
    parts: list[Part] = []
    for part in message.parts:
        if not isinstance(part, Reasoning) or not _is_owned(part):
            parts.append(part)
            continue
        form, _, owner = (part.format or "").partition(_BETWEEN)
        if owner == provider_id:
            parts.append(replace(part, format=form))
            continue
        if part.text:
            parts.append(Reasoning(text=part.text, summary=part.summary, cache=part.cache))
    if not any(isinstance(part, Reasoning) for part in parts):
        name = "reasoning" if "[" in place else "content"
        target.note_dropped(
            f"{place}.{name}", "thinking under the seal of another provider, which this one cannot open"
        )
    return replace(message, parts=parts)
