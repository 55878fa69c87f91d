"""Signature owner: thinking whose signature holds for one account only names the provider that made it.

Some makers sign thinking for the account that asked: another account, though it serves the same models, refuses a whole
request for it. On their way through clients such signatures bear the provider's id behind their format. Others are
taken wherever their maker's models are served.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, Message, Part, Reasoning, Target
from apps.gateway.canonical.events import ReasoningDelta
from apps.gateway.dialects.adapting.unsupported_fields import message_path

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
