"""OpenAI Chat Completions, client side: writes one choice: the message of a reply, and the pieces that chunks are made
of.

Knows the shape of a message. Must never know what stands around choices.
"""

from __future__ import annotations

from typing import Any

from apps.gateway.canonical.events import AudioDelta, Choice, ReasoningDelta
from apps.gateway.dialects.chat.openai.provider.write_messages import write_detail
from apps.gateway.dialects.chat.openai.shared.wire import NAME, PARKED

Record = dict[str, Any]


def write_choice(choice: Choice, *, legacy: bool, silent: bool) -> Record:
    """Return a choice without its index. `legacy` clients know functions, not tools; `silent` ones want no thinking."""
    reason = choice.finish or "stop"
    wire: Record = {
        "message": _message(choice, legacy=legacy, silent=silent),
        "finish_reason": "function_call" if legacy and reason == "tool_calls" else reason,
    }
    if choice.logprobs is not None:
        wire["logprobs"] = choice.logprobs
    return wire | choice.choice_extra.get(NAME, {})


def _message(choice: Choice, *, legacy: bool, silent: bool) -> Record:
    content = choice.text
    # The model's own words; else its provider's, whose filter ended the answer.
    refusal = choice.explanation if choice.refusal is None else choice.refusal
    if content is None and not (choice.tool_calls or refusal or choice.audio):
        # Clients count on a string where nothing else stands for it.
        content = ""
    wire: Record = {"role": "assistant", "content": content}
    if choice.reasoning and not silent:
        wire["reasoning"] = "".join(block.text for block in choice.reasoning)
        if any(has_details(block) for block in choice.reasoning):
            wire["reasoning_details"] = [write_detail(block, block.block) for block in choice.reasoning]
    if refusal is not None:
        wire["refusal"] = refusal
    if choice.tool_calls:
        calls = [write_call(call.id, call.name, call.arguments, call.extra) for call in choice.tool_calls]
        wire |= {"function_call": calls[0]["function"]} if legacy else {"tool_calls": calls}
    if choice.images:
        wire["images"] = [write_image(url) for url in choice.images]
    if choice.audio is not None:
        wire["audio"] = write_audio(choice.audio)
    if choice.annotations:
        wire |= write_annotations(choice.annotations, len(choice.text or ""))
    return wire | choice.extra.get(NAME, {})


def write_call(call_id: str, name: str, arguments: str, extra: Record | None) -> Record:
    """Return a tool call."""
    if extra and extra.get("type") == "custom":
        return {"id": call_id, "custom": {"name": name, "input": arguments}, **extra}
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}, **(extra or {})}


def has_details(block: ReasoningDelta) -> bool:
    """Return whether a block is more than text, so that clients need it as it is to send it back."""
    return block.format is not None or block.signature is not None or block.data is not None


def write_image(url: str) -> Record:
    """Return an image."""
    return {"type": "image_url", "image_url": {"url": url}}


def write_annotations(annotations: list[Record], length: int) -> Record:
    """Return citations; notes of other kinds, which strict clients refuse, are parked. A citation that has no place is
    one of all `length` characters that were said; a page without a title is called by its address."""
    citations = [_placed(note, length) for note in annotations if note.get("type") == "url_citation"]
    others = [note for note in annotations if note.get("type") != "url_citation"]
    wire: Record = {"annotations": citations} if citations else {}
    return wire | {PARKED: {"annotations": others}} if others else wire


def _placed(note: Record, length: int) -> Record:
    page = note.get("url_citation")
    if not isinstance(page, dict):
        return note
    placed = all(isinstance(page.get(name), int) for name in ("start_index", "end_index"))
    titled = isinstance(page.get("title"), str)
    if placed and titled:
        return note
    title: Record = {} if titled else {"title": page.get("url", "")}
    place: Record = {} if placed else {"start_index": 0, "end_index": length}
    return {**note, "url_citation": {**page, **title, **place}}


def write_audio(audio: AudioDelta) -> Record:
    """Return sound, or a piece of it."""
    stated = {"id": audio.id, "data": audio.data, "transcript": audio.transcript, "expires_at": audio.expires_at}
    return {name: value for name, value in stated.items() if value}
