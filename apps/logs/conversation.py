"""The conversation of a logged request as readable pieces: messages, the answer, and the offered tools. Pure.

Messages are in OpenAI's, Anthropic's, Gemini's or Bedrock's format, as the client wrote them; other values are shown as
JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from apps.logs.answers import choices_of
from apps.logs.query import LogRow, objects_in, read_json

# Characters of one text; the export has all of them.
MAX_CHARACTERS: Final = 20_000
# Types of items and blocks that are results of tools, and calls of them.
_RESULTS: Final = frozenset({"function_call_output", "custom_tool_call_output", "tool_result"})
_CALLS: Final = frozenset({"function_call", "custom_tool_call", "tool_use"})


@dataclass(frozen=True, slots=True)
class Said:
    """A message of the conversation; `pieces` are (kind, text), where kind is `text` or the title of a folded part."""

    title: str
    pieces: list[tuple[str, str]]
    is_answer: bool = False


def messages_of(row: LogRow) -> Iterator[Said]:
    """Yield messages in a format named above; other values as JSON."""
    messages = read_json(row["messages"])
    if isinstance(messages, str):
        yield Said("user", [("text", _short(messages))])
    elif isinstance(messages, list):
        for one in messages:
            if isinstance(one, dict):
                yield Said(str(one.get("role") or one.get("type") or "input"), _message(one))
            else:
                yield Said("input", [("text", as_shown(one))])
    elif messages is not None:
        yield Said("input", [("JSON", as_shown(messages))])


def _message(message: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the pieces of a message; results of tools are folded, whichever the format."""
    content = next((message[name] for name in ("content", "parts", "output", "arguments") if name in message), None)
    if message.get("role") == "tool" or message.get("type") in _RESULTS:
        return [("tool result", as_shown(content))]
    if message.get("type") in _CALLS:
        return [(_call_title(message), _arguments(content))]
    pieces = list(_pieces(content))
    for call in objects_in(message.get("tool_calls")):
        function = call.get("function") or call.get("custom") or call
        pieces.append((_call_title(function), _arguments(function.get("arguments") or function.get("input"))))
    return pieces


def _call_title(call: Mapping[str, Any]) -> str:
    return f"tool call {call.get('name') or ''}".strip()


def _arguments(value: Any) -> str:
    """Return the arguments of a call, indented where they are JSON."""
    if isinstance(value, str):
        try:
            return as_shown(json.loads(value))
        except ValueError:
            return _short(value)
    return as_shown(value)


def answers_of(row: LogRow) -> Iterator[Said]:
    """Yield the answer: its reasoning, and each choice with its texts and calls of tools."""
    if row["reasoning_content"]:
        yield Said("reasoning", [("text", _short(row["reasoning_content"]))])
    choices = choices_of(row) or [{"index": 0, "content": row["content"], "refusal": row["refusal"]}]
    calls = objects_in(read_json(row["tool_calls"]))
    for choice in choices:
        pieces = [("text", _short(choice["content"]))] if choice["content"] else []
        pieces += [("refusal", _short(choice["refusal"]))] if choice["refusal"] else []
        pieces += [
            (_call_title(call), _arguments(call.get("arguments")))
            if "name" in call
            else ("more calls", f"{call.get('omitted')} more calls were not stored")
            for call in calls
            if call.get("choice", 0) == choice["index"]
        ]
        if pieces:
            number = f" {choice['index'] + 1} of {len(choices)}" if len(choices) > 1 else ""
            yield Said(f"answer{number}", pieces, is_answer=True)
    if citations := objects_in(read_json(row["citations"])):
        yield Said("citations", [("text", "\n".join(map(_citation, citations)))])
    # The results of other requests are in their messages.
    if row["route"].startswith("mcp_") and (results := read_json(row["tool_results"])):
        yield Said("results of tools", [("JSON", as_shown(results))])


def _citation(citation: Mapping[str, Any]) -> str:
    """Return a citation's title and address; another kind as JSON."""
    cited = citation.get("url_citation")
    if not isinstance(cited, dict):
        return json.dumps(citation, ensure_ascii=False)
    return " ".join(str(cited[name]) for name in ("title", "url") if cited.get(name))


def settings_of(row: LogRow) -> Iterator[tuple[str, str]]:
    """Yield the offered tools, the choice of a tool and the response format."""
    for tool in _tools(read_json(row["tools"])):
        yield f"tool {_tool_name(tool)}".strip(), "" if isinstance(tool, str) else as_shown(tool)
    for column, title in (("tool_choice", "tool choice"), ("response_format", "response format")):
        if (value := read_json(row[column])) is not None:
            yield title, as_shown(value)


def _tools(value: Any) -> Iterator[Any]:
    """Yield each tool; Gemini's format has several of them in one."""
    for tool in value if isinstance(value, list) else []:
        declared = tool.get("functionDeclarations") if isinstance(tool, dict) else None
        if isinstance(declared, list):
            yield from declared
        else:
            yield tool


def _tool_name(tool: Any) -> str:
    if not isinstance(tool, dict):
        return str(tool)
    inner = next((tool[name] for name in ("function", "custom") if isinstance(tool.get(name), dict)), tool)
    return str(inner.get("name") or tool.get("type") or "")


def _pieces(content: Any) -> Iterator[tuple[str, str]]:
    if isinstance(content, str):
        yield "text", _short(content)
    elif isinstance(content, list):
        for part in content:
            yield _piece(part)
    elif content is not None:
        yield "JSON", as_shown(content)


def _piece(part: Any) -> tuple[str, str]:
    """Return a part of a message: a text, a call of a tool, the result of one, or another part as JSON."""
    if not isinstance(part, dict):
        return "part", as_shown(part)
    if isinstance(part.get("text"), str):
        return "text", _short(part["text"])
    if isinstance(call := part.get("functionCall"), dict):
        return _call_title(call), as_shown(call.get("args"))
    if isinstance(result := part.get("functionResponse"), dict):
        return "tool result", as_shown(result.get("response"))
    # Bedrock names a block's kind by its only field.
    if isinstance(call := part.get("toolUse"), dict):
        return _call_title(call), _arguments(call.get("input"))
    if isinstance(result := part.get("toolResult"), dict):
        return _result_title(result), _result_of(result.get("content"))
    if part.get("type") in _CALLS:
        return _call_title(part), _arguments(part.get("input"))
    if part.get("type") in _RESULTS:
        return "tool result", as_shown(part.get("content"))
    return str(part.get("type") or "part"), as_shown(part)


def _result_title(result: Mapping[str, Any]) -> str:
    return "tool result (error)" if result.get("status") == "error" else "tool result"


def _result_of(content: Any) -> str:
    """Return the content of one of Bedrock's results: its only text or JSON, or all of its blocks as JSON."""
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        [block] = content
        return as_shown(next((block[name] for name in ("text", "json") if name in block), block))
    return as_shown(content)


def as_shown(value: Any) -> str:
    """Return a text, or another value as indented JSON, cut at `MAX_CHARACTERS`."""
    return _short(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2))


def _short(text: str) -> str:
    if len(text) <= MAX_CHARACTERS:
        return text
    return f"{text[:MAX_CHARACTERS]}\n… {len(text) - MAX_CHARACTERS:,} more characters; the export has them"
