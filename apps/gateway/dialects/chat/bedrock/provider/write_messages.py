"""Bedrock Converse, provider side: writes `system` and `messages`; turns alternate, a user begins, tool results come
first.

Knows turns. Blocks are written in `write_blocks.py`. Must never know a model by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from apps.gateway.canonical.chat import Chat, Message, Reasoning, Text
from apps.gateway.dialects.adapting.unsupported_fields import message_path
from apps.gateway.dialects.chat.bedrock.provider.flavor import Flavor
from apps.gateway.dialects.chat.bedrock.provider.write_blocks import SAYS_NOTHING, Blocks
from apps.gateway.dialects.chat.bedrock.shared.wire import Record, refused

_INSTRUCTIONS = frozenset({"system", "developer"})
_FILES = ("document", "video")


def write_messages(chat: Chat, blocks: Blocks, flavor: Flavor) -> tuple[list[Record], list[Record]]:
    """Return the instructions that the conversation begins with, and its turns. Raises InvalidRequest.

    Neighbours of one role are one turn; who says nothing says ".". Instructions in mid-conversation stay where they
    are, as marked text of the user's. A conversation of nothing but instructions is followed by a user's ".".
    """
    messages = chat.messages
    begins = next(
        (at for at, it in enumerate(messages) if it.role not in _INSTRUCTIONS or not _is_text(it)), len(messages)
    )
    places = [message_path(chat, number) for number in range(len(messages))]
    system = [
        block
        for message, place in zip(messages[:begins], places[:begins], strict=True)
        for block in _blocks(message, place, "system", blocks)
    ]
    turns: list[Record] = []
    for message, place in zip(messages[begins:], places[begins:], strict=True):
        role, said = _turn(message, place, blocks)
        if not said:
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += said
        else:
            turns.append({"role": role, "content": said})
    if not turns or turns[0]["role"] != "user":
        turns.insert(0, {"role": "user", "content": [SAYS_NOTHING]})
    return system, [split for turn in turns for split in _in_order(turn, flavor)]


def _is_text(message: Message) -> bool:
    return all(isinstance(part, Text) for part in message.parts)


def _turn(message: Message, place: str, blocks: Blocks) -> tuple[str, list[Record]]:
    """Return the role that speaks, and what it says."""
    if message.role == "assistant":
        return "assistant", _blocks(message, place, "assistant", blocks)
    if message.role not in _INSTRUCTIONS:
        return "user", _blocks(message, place, message.role, blocks) or [SAYS_NOTHING]
    if not _is_text(message):
        raise refused("Instructions can only be text for this model's provider", place)
    said = _blocks(message, place, "system", blocks)
    texts = [block for block in said if "text" in block]
    if texts:
        texts[0]["text"] = f"<system>\n{texts[0]['text']}"
        texts[-1]["text"] = f"{texts[-1]['text']}\n</system>"
    return "user", said


def _blocks(message: Message, place: str, role: str, blocks: Blocks) -> list[Record]:
    """Return what a message says; each part under the name that the client has for its place."""
    counted = place != "messages"
    thoughts = sum(isinstance(part, Reasoning) for part in message.parts)
    return [
        block
        for at, part in enumerate(message.parts)
        for block in blocks.write(part, role, f"{place}.content[{at - thoughts}]" if counted else f"{place}.content")
    ]


def _in_order(turn: Record, flavor: Flavor) -> Iterator[Record]:
    """Yield a turn, what tools answered first. A user's is in two where the model cannot hear both at once."""
    if turn["role"] == "assistant":
        yield turn
        return
    results, others = _apart(turn["content"])
    if results and _must_part(others, flavor):
        yield {"role": "user", "content": results}
        yield {"role": "assistant", "content": [SAYS_NOTHING]}
        results = []
    if any("document" in block for block in others) and not any("text" in block for block in others):
        others.append(SAYS_NOTHING)
    yield {"role": "user", "content": results + others}


def _apart(content: Iterable[Record]) -> tuple[list[Record], list[Record]]:
    """Return the results, and everything else; a cache mark stays with what it stands behind."""
    results: list[Record] = []
    others: list[Record] = []
    latest = others
    for block in content:
        if "cachePoint" not in block:
            latest = results if "toolResult" in block else others
        latest.append(block)
    return results, others


def _must_part(others: list[Record], flavor: Flavor) -> bool:
    """Return whether what a user says cannot stand beside what tools answered."""
    if flavor.tool_results == "alone":
        return bool(others)
    return flavor.tool_results == "without_files" and any(kind in block for block in others for kind in _FILES)
