"""Emulated tools: custom tools (free text in) and namespaces of tools as plain functions, for formats without them.

A custom tool becomes a function with one string argument; a tool of a namespace a function that bears both names. The
answer's calls are turned back (`restore_tools`). Names that a provider does not take are sent as others that it takes,
the same names always as the same, so that prompts stay cached; `undo_rewrites.py` restores them in the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from apps.gateway.canonical.chat import (
    Chat,
    EmulatedTool,
    FunctionTool,
    Message,
    OpaqueTool,
    Part,
    Target,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    WebSearchTool,
)
from apps.gateway.canonical.events import Event, Finished, ToolCallDelta, ToolCallStarted
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.adapting.unsupported_fields import client_of, unsupported_feature
from apps.gateway.dialects.reading.fields import Record

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_DIGITS = 8


def adapt_tool_names(chat: Chat, target: Target, allowed: re.Pattern[str], longest: int) -> Chat:
    """Return the chat with names of tools that `allowed` matches in full and that are at most so long.

    A chat whose names all fit is returned as it is. `target` keeps the original name of each name sent.
    """
    unfit = {name for name in _names_in(chat) if len(name) > longest or not allowed.fullmatch(name)}
    if not unfit:
        return chat
    sent = {name: _fitting(name, longest) for name in sorted(unfit)}
    target.rewrites.tool_names |= {fitting: name for name, fitting in sent.items()}
    return replace(
        chat,
        messages=[_renamed_message(message, sent) for message in chat.messages],
        tools=[
            replace(tool, name=sent.get(tool.name, tool.name)) if isinstance(tool, FunctionTool) else tool
            for tool in chat.tools or ()
        ]
        or None,
        tool_choice=None if chat.tool_choice is None else _renamed_choice(chat.tool_choice, sent),
        source=None,
    )


def _names_in(chat: Chat) -> Iterator[str]:
    for tool in chat.tools or ():
        if isinstance(tool, FunctionTool):
            yield tool.name
    for message in chat.messages:
        for part in message.parts:
            if isinstance(part, ToolCall | ToolResult) and part.name is not None:
                yield part.name


def _fitting(name: str, longest: int) -> str:
    """Return a name that every format takes: what can stay of it, and digits that only it has."""
    digits = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    stem = _UNSAFE.sub("_", name)[: longest - _DIGITS - 3].lstrip("-0123456789")
    return f"{stem or 'tool'}__{digits}"


def _renamed_message(message: Message, sent: dict[str, str]) -> Message:
    parts = [_renamed_part(part, sent) for part in message.parts]
    return (
        message
        if all(new is old for new, old in zip(parts, message.parts, strict=True))
        else replace(message, parts=parts)
    )


def _renamed_part(part: Part, sent: dict[str, str]) -> Part:
    if isinstance(part, ToolCall | ToolResult) and part.name in sent:
        return replace(part, name=sent[part.name])
    return part


def _renamed_choice(choice: ToolChoice, sent: dict[str, str]) -> ToolChoice:
    name = choice.name
    return replace(
        choice,
        name=sent.get(name, name) if name is not None else None,
        allowed=tuple(sent.get(one, one) for one in choice.allowed),
    )


# The function's only argument.
FIELD: Final = "input"
_BEGINNING: Final = re.compile(r'\s*\{\s*"input"\s*:\s*"')
# Whole characters and whole escapes of a JSON string. One half of a surrogate pair waits for the other.
_WHOLE: Final = re.compile(
    r"""(?:[^"\\]+|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\[^u])*"""
)
_HALF: Final = re.compile(r"\\u[0-9a-fA-F]{4}")


class FreeTextInput:
    """One call's arguments on their way."""

    __slots__ = ("_begun", "_over", "_waiting")

    def __init__(self) -> None:
        self._waiting = ""
        self._begun = self._over = False

    def feed(self, arguments: str) -> str:
        """Return the text that further arguments bring."""
        if self._over:
            return ""
        self._waiting += arguments
        if not self._begun:
            if (beginning := _BEGINNING.match(self._waiting)) is None:
                return ""
            self._begun = True
            self._waiting = self._waiting[beginning.end() :]
        return self._read()

    def end(self) -> str:
        """Return the remaining text once no arguments follow; arguments of another shape are taken as they are."""
        waiting, self._waiting = self._waiting, ""
        over, self._over = self._over, True
        if over:
            return ""
        if self._begun:
            # Cut off in the middle of an escape.
            return ""
        try:
            value = json.loads(waiting, strict=False)
        except ValueError:
            return waiting
        if isinstance(value, dict):
            texts = [text for text in (value.get(FIELD), *value.values()) if isinstance(text, str)]
            return _valid_text(texts[0]) if texts else ("" if not value else waiting)
        return _valid_text(value) if isinstance(value, str) else waiting

    def _read(self) -> str:
        pieces: list[str] = []
        while True:
            whole = _WHOLE.match(self._waiting)
            end = whole.end() if whole is not None else 0
            pieces.append(self._waiting[:end])
            self._waiting = self._waiting[end:]
            half = _HALF.match(self._waiting)
            if half is None or len(self._waiting) < half.end() + 2 or self._waiting.startswith("\\u", half.end()):
                break
            # Half of a pair that no other half follows.
            pieces.append("\\ufffd")
            self._waiting = self._waiting[half.end() :]
        if self._waiting.startswith('"'):
            self._over, self._waiting = True, ""
        return _valid_text(json.loads(f'"{"".join(pieces)}"', strict=False))


def _valid_text(text: str) -> str:
    """Return the text without halves of surrogate pairs, which no encoding has."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


_SEPARATOR: Final = "__"
# Fields of tools that only OpenAI's formats have, and the values that ask for nothing.
_ONLY_THERE: Final[Record] = {
    "allowed_callers": ["direct"],
    "async": False,
    "defer_loading": False,
    "output_schema": {},
}
_encode = msgspec.json.Encoder().encode


def emulate_tools(chat: Chat, dialect: ProviderDialect, target: Target) -> Chat:
    """Return the chat with functions in place of tools that the format `dialect` does not support; one without
    such tools is returned as it is.

    Raises InvalidRequest for a tool of OpenAI's formats that can neither be sent nor be emulated.
    """
    client = client_of(chat)
    if client is None or client.custom_tool_dialects is None or dialect.name in client.custom_tool_dialects:
        return chat
    opaque = any(type(tool) is OpaqueTool for tool in chat.tools or ())
    if not opaque and (ToolCall not in chat.kinds or not any(map(_has_emulated_call, chat.messages))):
        return _without_optional_search(chat, dialect, target)
    emulation = _Emulation(chat, target)
    tools = [made for number, tool in enumerate(chat.tools or ()) for made in emulation.tools_for(tool, number)]
    target.rewrites.emulated |= emulation.made
    chat = replace(
        chat,
        tools=tools or None,
        messages=[emulation.message(message) for message in chat.messages],
        tool_choice=None if chat.tool_choice is None else emulation.choice(chat.tool_choice),
        source=None,
    )
    return _without_optional_search(chat, dialect, target)


def is_optional_search(chat: Chat) -> bool:
    """Return whether a web search is an optional tool among others: agents offer it to every model."""
    tools = chat.tools or ()
    client = client_of(chat)
    if client is None or not client.has_optional_search or not any(isinstance(tool, WebSearchTool) for tool in tools):
        return False
    choice = chat.tool_choice
    insisted = choice is not None and (choice.mode == "named" or bool(choice.allowed))
    return not insisted and not all(isinstance(tool, WebSearchTool) for tool in tools)


def _without_optional_search(chat: Chat, dialect: ProviderDialect, target: Target) -> Chat:
    """Return the chat without a web search that the target lacks and the client can do without, which is noted."""
    facts = target.facts
    alone = not dialect.takes_search_with_tools and "search_with_tools" not in facts.get("takes", ())
    if (facts.get("web_search", True) and not alone) or not is_optional_search(chat):
        return chat
    number = next(at for at, tool in enumerate(chat.tools or ()) if isinstance(tool, WebSearchTool))
    target.note_dropped(f"tools[{number}]", "this model's provider has no web search beside other tools")
    tools = [tool for tool in chat.tools or () if not isinstance(tool, WebSearchTool)]
    return replace(chat, tools=tools, source=None)


def restore_tools(events: Iterable[Event], emulated: dict[str, EmulatedTool]) -> Iterator[Event]:
    """Yield an answer's events with calls of emulated tools as the client knows those tools."""
    inputs: dict[tuple[int, int], FreeTextInput] = {}
    for event in events:
        match event:
            case ToolCallStarted():
                yield from _flushed(inputs, event.choice)
                tool = emulated.get(event.name)
                if tool is None:
                    yield event
                    continue
                extra = dict(event.extra or {})
                if tool.namespace is not None:
                    extra["namespace"] = tool.namespace
                if tool.custom:
                    extra["type"] = "custom"
                    inputs[event.choice, event.index] = FreeTextInput()
                yield replace(event, name=tool.name, extra=extra)
            case ToolCallDelta() if (event.choice, event.index) in inputs:
                if text := inputs[event.choice, event.index].feed(event.arguments):
                    yield replace(event, arguments=text)
            case Finished():
                yield from _flushed(inputs, event.choice)
                yield event
            case _:
                yield event


def _flushed(inputs: dict[tuple[int, int], FreeTextInput], choice: int) -> Iterator[Event]:
    """Yield the remaining inputs of a choice's earlier calls."""
    for (number, index), written in inputs.items():
        if number == choice and (text := written.end()):
            yield ToolCallDelta(choice=number, index=index, arguments=text)


def _has_emulated_call(message: Message) -> bool:
    return any(isinstance(part, ToolCall) and part.extra and _is_emulated(part) for part in message.parts)


def _is_emulated(call: ToolCall) -> bool:
    extra = call.extra or {}
    return extra.get("type") == "custom" or isinstance(extra.get("namespace"), str)


class _Emulation:
    """The functions that stand for a chat's tools, by the names that they are sent under."""

    def __init__(self, chat: Chat, target: Target) -> None:
        self.made: dict[str, EmulatedTool] = {}
        self._chat = chat
        self._target = target
        self._sent: dict[tuple[str | None, str], str] = {}
        self._taken = {tool.name for tool in chat.tools or () if isinstance(tool, FunctionTool)}

    def tools_for(self, tool: Tool, number: int) -> list[Tool]:
        """Return the tool as it is sent. Raises InvalidRequest for a tool that cannot be emulated."""
        if not isinstance(tool, OpaqueTool):
            return [tool]
        data = tool.data
        kind = data.get("type") if isinstance(data, dict) else None
        self._note_lost(data, f"tools[{number}]")
        if kind == "custom":
            return [self._custom(data.get("custom", data), None, "")]
        if kind == "namespace":
            name, about = str(data.get("name")), data.get("description")
            within = f"{about}\n\n" if isinstance(about, str) and about else ""
            inner_tools = data.get("tools") or ()
            for at, inner in enumerate(inner_tools):
                self._note_lost(inner, f"tools[{number}].tools[{at}]")
            return [self._of_namespace(inner, name, within) for inner in inner_tools]
        raise unsupported_feature(
            self._chat, f"tools[{number}]", f"Tools of the type {kind} are not available from this model's provider"
        )

    def _note_lost(self, data: Any, place: str) -> None:
        """Note what a tool says that a function cannot; values that ask for what happens anyway are no loss."""
        for name, usual in _ONLY_THERE.items():
            if isinstance(data, dict) and (value := data.get(name)) is not None and value != usual:
                self._target.note_dropped(f"{place}.{name}", "a field that is not known to this model's provider")

    def message(self, message: Message) -> Message:
        """Return an earlier turn with its calls as they would be made now."""
        if not _has_emulated_call(message):
            return message
        return replace(message, parts=[self._part(part) for part in message.parts])

    def choice(self, choice: ToolChoice) -> ToolChoice:
        """Return a choice among the tools with their names as they are sent; a namespace stands for all of its own."""
        sent = {name: flat for (_, name), flat in self._sent.items()}
        spaces: dict[str, list[str]] = {}
        for (space, _), flat in self._sent.items():
            spaces.setdefault(space or "", []).append(flat)
        allowed = tuple(flat for name in choice.allowed for flat in spaces.get(name) or [sent.get(name, name)])
        name = choice.name
        return replace(choice, name=None if name is None else sent.get(name, name), allowed=allowed)

    def _of_namespace(self, data: Record, namespace: str, within: str) -> FunctionTool:
        if data.get("type") == "custom":
            return self._custom(data, namespace, within)
        name = str(data.get("name"))
        sent = self._name(namespace, name, custom=False)
        description = f"{within}{data.get('description') or ''}".strip() or None
        strict = data.get("strict")
        return FunctionTool(
            name=sent,
            description=description,
            parameters=data.get("parameters"),
            strict=strict if isinstance(strict, bool) else None,
        )

    def _custom(self, data: Record, namespace: str | None, within: str) -> FunctionTool:
        name = str(data.get("name"))
        words = [within + (data.get("description") or ""), _grammar_of(data.get("format"))]
        about = "The whole input of the tool, as free text."
        return FunctionTool(
            name=self._name(namespace, name, custom=True),
            description="\n\n".join(filter(None, words)) or None,
            parameters={
                "type": "object",
                "properties": {FIELD: {"type": "string", "description": about}},
                "required": [FIELD],
                "additionalProperties": False,
            },
        )

    def _name(self, namespace: str | None, name: str, *, custom: bool) -> str:
        """Return the name under which a tool is sent, which no other tool has."""
        sent = name if namespace is None else f"{namespace}{_SEPARATOR}{name}"
        while sent in self._taken:
            sent += "_"
        self._taken.add(sent)
        self._sent[namespace, name] = sent
        self.made[sent] = EmulatedTool(name=name, namespace=namespace, custom=custom)
        return sent

    def _part(self, part: Part) -> Part:
        if not isinstance(part, ToolCall) or not _is_emulated(part):
            return part
        extra = dict(part.extra or {})
        custom, namespace = extra.pop("type", None) == "custom", extra.pop("namespace", None)
        name = self._sent.get((namespace, part.name))
        if name is None:
            name = part.name if namespace is None else f"{namespace}{_SEPARATOR}{part.name}"
        arguments = _encode({FIELD: part.arguments}).decode() if custom else part.arguments
        return replace(part, name=name, arguments=arguments, extra=extra or None)


def _grammar_of(form: Any) -> str:
    """Return the words that tell a model the grammar of a tool's input; none where it is free text."""
    if not isinstance(form, dict):
        return ""
    nested = form.get("grammar")
    grammar: Record = nested if isinstance(nested, dict) else form
    definition, syntax = grammar.get("definition"), grammar.get("syntax")
    if not isinstance(definition, str):
        return ""
    return f"The input must match this grammar ({syntax}):\n{definition}"
