"""The tool `chat`: calls a model, and sends the text as progress to clients that want it."""

from __future__ import annotations

import time
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from apps.gateway.canonical.events import Event, Failed, Reply, Summary, TextDelta, Waiting
from apps.gateway.canonical.fold import ReplyBuilder
from apps.gateway.client.client_disconnect import CancelSwitch
from apps.gateway.dialects.chat.openai import CLIENT as OPENAI
from apps.gateway.pipeline import open_chat
from apps.gateway.run import ChatRun
from apps.kernel.errors import InternalError
from apps.kernel.money import plain
from apps.mcp.protocol.toolbox import Caller, CallResult, Progress, text_block
from apps.mcp.tools.tool_request import ToolRequest, picture_block

NAME: Final = "chat"
_ROUTE, _PATH = "chat_completions", "/v1/chat/completions"
# Seconds of text per progress message: one for each token would be mostly overhead.
_GATHERED: Final = 0.1


class Turn(msgspec.Struct, forbid_unknown_fields=True):
    """A message of the conversation."""

    role: Literal["system", "user", "assistant"]
    content: Annotated[str, Meta(min_length=1, description="The text of the message.")]


class ChatArguments(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Arguments of `chat`."""

    messages: Annotated[list[Turn], Meta(min_length=1, max_length=2_000, description="The conversation so far.")]
    model: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=255,
            description="A model's id (see list-models), provider/model, or auto for the cheapest suitable model.",
        ),
    ] = "auto"
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, Meta(ge=1, description="Maximum tokens of the answer.")] | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None


class TokenCounts(msgspec.Struct, kw_only=True):
    """Tokens as the provider counted them."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatAnswer(msgspec.Struct, kw_only=True):
    """The model's answer."""

    id: str
    model: str
    provider: str
    content: str
    finish_reason: str | None
    usage: TokenCounts
    cost: Annotated[str, Meta(description="USD, a decimal.")]


def chat(caller: Caller, arguments: ChatArguments, progress: Progress | None, cancelled: CancelSwitch) -> CallResult:
    """Ask a model and return its answer. Raises ApiError."""
    # Progress needs a streamed answer.
    wire = {**msgspec.to_builtins(arguments), "stream": progress is not None}
    call = ToolRequest(caller, _PATH, {name: value for name, value in wire.items() if value is not None}, cancelled)
    try:
        reply, summary = _run(open_chat(call, _ROUTE, caller.token, OPENAI.read_request), progress)
    finally:
        call.release_bytes()
    return _result(reply, summary)


def _run(run: ChatRun, progress: Progress | None) -> tuple[Reply, Summary]:
    builder, summary = ReplyBuilder(), None
    teller = None if progress is None else _Teller(progress)
    for event in run.events():
        if type(event) is Failed:
            raise event.error
        if type(event) is Summary:
            summary = event
            continue
        builder.add(event)
        if teller is not None:
            teller.take(event)
    if summary is None:
        raise InternalError("The answer ended without a summary")
    if teller is not None:
        teller.flush()
    return builder.reply(), summary


def _result(reply: Reply, summary: Summary) -> CallResult:
    choice = reply.choices[0] if reply.choices else None
    text = "" if choice is None else choice.text or choice.refusal or ""
    usage = summary.usage
    answer = ChatAnswer(
        id=reply.id,
        model=reply.model,
        provider=reply.provider,
        content=text,
        finish_reason=None if choice is None else choice.finish,
        usage=TokenCounts(
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            total_tokens=usage.total_tokens,
        ),
        cost=plain(summary.cost["total"]),
    )
    pictures = [] if choice is None else [picture_block(url) for url in choice.images]
    content: list[dict[str, Any]] = [text_block(text), *pictures] if text or not pictures else pictures
    return CallResult(content=content, structured=msgspec.to_builtins(answer))


class _Teller:
    """Sends the text of an answer in pieces; progress is the number of characters, and one for each silence."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._so_far = 0
        self._pieces: list[str] = []
        self._told_at = 0.0

    def take(self, event: Event) -> None:
        """Process an event of the answer."""
        if type(event) is TextDelta and event.choice == 0:
            self._pieces.append(event.text)
            if time.monotonic() - self._told_at >= _GATHERED:
                self.flush()
        elif type(event) is Waiting:
            self._so_far += 1
            self._progress(self._so_far)

    def flush(self) -> None:
        """Send the gathered text."""
        text = "".join(self._pieces)
        if text:
            self._pieces.clear()
            self._so_far += len(text)
            self._told_at = time.monotonic()
            self._progress(self._so_far, message=text)
