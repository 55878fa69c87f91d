"""What a chat asks of whoever answers it, each with a name for people. Decides over values; must never choose."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from apps.catalog.snapshot import Offer
from apps.gateway.canonical.chat import Chat, FunctionTool, Image, WebSearchTool
from apps.gateway.facts import can_be_structured
from apps.gateway.pictures import tests_of


class Need(NamedTuple):
    """Something an offer must be able to do: its name for people, the test, and the client's field that asks for it."""

    name: str
    can: Callable[[Offer], bool]
    param: str = "model"


def needs_of(chat: Chat) -> list[Need]:
    """Return what an offer must be able to do, each with its name for people."""
    if chat.drawing is not None:
        return [Need(*test) for test in tests_of(chat, chat.drawing)]
    needs: list[Need] = []
    parts = [part for message in chat.messages for part in message.parts]
    if any(isinstance(part, Image) for part in parts):
        needs.append(Need("image input", lambda offer: offer.vision))
    if any(isinstance(tool, FunctionTool) for tool in chat.tools or ()):
        needs.append(Need("tools", lambda offer: offer.tools))
        if chat.parallel_tool_calls:
            needs.append(Need("parallel tool calls", lambda offer: offer.parallel_tools))
    if chat.web_search or any(isinstance(tool, WebSearchTool) for tool in chat.tools or ()):
        needs.append(Need("web search", lambda offer: offer.web_search))
    if chat.response_format is not None and chat.response_format.kind == "json_object":
        needs.append(Need("JSON output", lambda offer: offer.json_output))
    if chat.response_format is not None and chat.response_format.kind == "json_schema":
        needs.append(Need("structured outputs", can_be_structured))
    if chat.reasoning is not None and (chat.reasoning.max_tokens or chat.reasoning.effort not in {None, "none"}):
        needs.append(Need("reasoning", lambda offer: offer.reasoning))
    if chat.stream:
        needs.append(Need("streaming", lambda offer: offer.streaming))
    return needs
