"""Rewrites of a request for a provider, recorded so that the answer can be changed back."""

from __future__ import annotations

import msgspec


class StopEmulation(msgspec.Struct, frozen=True):
    """The stop sequences before which an answer is cut here. A call of a stream is ended with the last choice's cut."""

    sequences: tuple[str, ...]
    streamed: bool = False
    choices: int = 1


class EmulatedTool(msgspec.Struct, frozen=True):
    """A tool that a function stands for: the client's name of it, its namespace, and whether it takes free text."""

    name: str
    namespace: str | None = None
    custom: bool = False


class Rewrites(msgspec.Struct):
    """How a request was changed so that its answer has to be changed back (`dialects/adapting/undo_rewrites.py`).

    `tool_names`: a tool's name as it was sent -> the client's. `hidden_tool`: the tool whose arguments are the answer's
    text; where it is `wrapped_in_value`, only their field `value`. `healing`: JSON was asked for in words, so that it
    may need repair. `stop`: the provider takes no stop sequences.
    """

    tool_names: dict[str, str] = {}
    hidden_tool: str | None = None
    wrapped_in_value: bool = False
    healing: bool = False
    # Functions that stand for tools of another kind, by the names under which they are sent.
    emulated: dict[str, EmulatedTool] = {}
    stop: StopEmulation | None = None
