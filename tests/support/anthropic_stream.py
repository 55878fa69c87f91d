"""Streams of Anthropic's format, as its own clients read them: what they add up to, and that their order is sound."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any


def message_of(events: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the message that a stream adds up to."""
    message: dict[str, Any] = {}
    arguments: dict[int, str] = {}
    for event in events:
        match event:
            case {"type": "message_start"}:
                start = event["message"]
                message = {**start, "content": [], "usage": dict(start["usage"])}
            case {"type": "content_block_start"}:
                message["content"].append(dict(event["content_block"]))
            case {"type": "content_block_delta", "index": index, "delta": delta}:
                block = message["content"][index]
                match delta["type"]:
                    case "text_delta":
                        block["text"] += delta["text"]
                    case "thinking_delta":
                        block["thinking"] += delta["thinking"]
                    case "signature_delta":
                        block["signature"] = delta["signature"]
                    case "citations_delta":
                        block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
                    case "input_json_delta":
                        arguments[index] = arguments.get(index, "") + delta["partial_json"]
            case {"type": "message_delta"}:
                message |= event["delta"]
                message["usage"] |= {name: value for name, value in event["usage"].items() if value is not None}
                message |= {name: value for name, value in event.items() if name not in {"type", "delta", "usage"}}
    for index, text in arguments.items():
        if text:
            message["content"][index]["input"] = json.loads(text)
    return message


def assert_in_order(events: list[dict[str, Any]]) -> None:
    """Exactly one block is open at a time, starts and stops are balanced, indices count up, and the ends come last."""
    kinds = [event["type"] for event in events if event["type"] != "ping"]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("message_start") == kinds.count("message_delta") == kinds.count("message_stop") == 1
    opened, current = 0, None
    for event in events[1:]:
        match event["type"]:
            case "content_block_start":
                assert current is None
                assert event["index"] == opened
                current, opened = event["index"], opened + 1
            case "content_block_delta":
                assert event["index"] == current
            case "content_block_stop":
                assert event["index"] == current
                current = None
    assert current is None
