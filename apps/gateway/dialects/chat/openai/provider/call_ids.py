"""OpenAI Chat Completions, provider side: tool call ids in the form a provider takes: without a foreign signature,
short enough, in allowed characters. Within a request no two become one, and the same id always becomes the same.

Knows ids. Must never know who allows what.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from hashlib import sha256
from itertools import count

from apps.gateway.canonical.chat import Message, ToolCall, ToolResult
from apps.gateway.dialects.adapting.signed_call_ids import split_signature
from apps.gateway.dialects.chat.openai.provider.flavor import CallIds

# The most that OpenAI itself took for long; others took over its limit.
MOST = 40
_NINE = 9
_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_NINE_ALPHANUMERICS = re.compile(r"[0-9A-Za-z]{9}")


def adapt_call_ids(messages: Iterable[Message], kind: CallIds) -> dict[str, str]:
    """Return what each id that has to change becomes; ids that fit are kept, and are not in it."""
    seen = dict.fromkeys(
        part.id if isinstance(part, ToolCall) else part.call_id
        for message in messages
        for part in message.parts
        if isinstance(part, ToolCall | ToolResult)
    )
    fits, make = _KINDS[kind]
    fitting = {call_id for call_id in seen if fits(call_id)}
    taken, changed = set(fitting), dict[str, str]()
    for call_id in seen:
        if call_id not in fitting:
            bare = split_signature(call_id)[0]
            new = bare if fits(bare) and bare not in taken else _unused(call_id, make, taken)
            taken.add(new)
            changed[call_id] = new
    return changed


def _is_signed(call_id: str) -> bool:
    return split_signature(call_id)[1] is not None


def _unused(call_id: str, make: Callable[[bytes], str], taken: set[str]) -> str:
    """Return an id made of another one's digest, which nobody has yet."""
    for attempt in count():
        new = make(sha256(f"{attempt}:{call_id}".encode("utf-8", "replace")).digest())
        if new not in taken:
            return new
    raise AssertionError


def _is_short(call_id: str) -> bool:
    return 0 < len(call_id) <= MOST and not _is_signed(call_id)


def _short(digest: bytes) -> str:
    return f"call_{digest.hex()[:32]}"


def _is_nine(call_id: str) -> bool:
    return _NINE_ALPHANUMERICS.fullmatch(call_id) is not None


def _nine(digest: bytes) -> str:
    number = int.from_bytes(digest)
    letters = []
    for _ in range(_NINE):
        number, letter = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[letter])
    return "".join(letters)


def _is_bare(call_id: str) -> bool:
    return not _is_signed(call_id)


_KINDS: dict[CallIds, tuple[Callable[[str], bool], Callable[[bytes], str]]] = {
    "any": (_is_bare, _short),
    "short": (_is_short, _short),
    "nine_alphanumerics": (_is_nine, _nine),
}
