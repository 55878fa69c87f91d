"""Calls of server tools: made one after the other for a model that asked for them; how each ended, in words for it.

A call that fails is an answer too: the model gets the reason, and goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final

import gevent
import msgspec
from django.conf import settings

from apps.gateway.canonical.events import Waiting
from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.gateway.server_tools.toolset import OfferedTool
from apps.gateway.tool_calls.call_tool import call_tool
from apps.gateway.tool_calls.caller import ToolCaller
from apps.kernel.errors import ApiError, ClientGone, InvalidRequest
from apps.mcp_servers.upstream.tools import ToolAnswer

# Characters of one result that a model gets.
MAX_TEXT_LENGTH: Final = 200_000
_CUT: Final = "\n[The rest of this result was cut off: it is too long.]"


class ServerCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a server's tool that a model asks for; `arguments` are as it wrote them."""

    id: str
    offered: OfferedTool
    arguments: str


class CallOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a call ended: with what the tool said, or with the gateway's own error."""

    answer: ToolAnswer | None = None
    error: ApiError | None = None

    @property
    def is_error(self) -> bool:
        """Whether the tool failed, in its own words or the gateway's."""
        return self.answer is None or self.answer.is_error

    @property
    def text(self) -> str:
        """The model's text of it."""
        if self.answer is None:
            return self.error.message if self.error is not None else ""
        said = [text for block in self.answer.content if (text := _text_of(block))]
        if not said and self.answer.structured is not None:
            said = [msgspec.json.encode(self.answer.structured).decode()]
        text = "\n".join(said)
        return text if len(text) <= MAX_TEXT_LENGTH else text[:MAX_TEXT_LENGTH] + _CUT

    @property
    def images(self) -> list[tuple[str, str]]:
        """The images that a model is shown: media type and base64 of each."""
        blocks = self.answer.content if self.answer is not None else []
        return [image for block in blocks if (image := _image_of(block)) is not None]


def call(caller: ToolCaller, asked: ServerCall, watch: ClientDisconnect) -> Generator[Waiting, None, CallOutcome]:
    """Call a tool and return how that ended; yield a sign of life now and then. Raises ClientGone."""
    try:
        arguments = _arguments_of(asked.arguments)
    except InvalidRequest as error:
        return CallOutcome(error=error)

    def work() -> CallOutcome | Exception:
        try:
            offered = asked.offered
            return CallOutcome(
                answer=call_tool(
                    caller, offered.server, offered.tool.name, arguments, interruption=watch, for_model=True
                )
            )
        except ClientGone as error:
            return error
        except ApiError as error:
            return CallOutcome(error=error)
        except Exception as error:  # noqa: BLE001 - raised again in the waiting greenlet
            return error

    outcome = yield from _with_signs_of_life(work)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _with_signs_of_life(
    work: Callable[[], CallOutcome | Exception],
) -> Generator[Waiting, None, CallOutcome | Exception]:
    """Do the work in a greenlet of its own, which closing the generator ends, as a client does that hangs up."""
    greenlet = gevent.spawn(work)
    try:
        while not greenlet.ready():
            greenlet.join(settings.HEARTBEAT_INTERVAL)
            if not greenlet.ready():
                yield Waiting()
        done: CallOutcome | Exception = greenlet.get()
        return done
    finally:
        if not greenlet.ready():
            greenlet.kill(ClientGone("The client closed the connection"))


def _arguments_of(written: str) -> dict[str, Any]:
    """Return a call's arguments; no text at all means none. Raises InvalidRequest."""
    try:
        arguments = msgspec.json.decode(written) if written.strip() else {}
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise InvalidRequest("The arguments are not a JSON object")
    return arguments


def _text_of(block: dict[str, Any]) -> str:
    """Return the text of a result's block; a block of another kind becomes JSON, without its bytes."""
    kind = block.get("type")
    if kind == "text":
        text = block.get("text")
        return text if isinstance(text, str) else ""
    if _image_of(block) is not None:
        return ""
    resource = block.get("resource")
    if isinstance(resource, dict) and isinstance(resource.get("text"), str):
        return str(resource["text"])
    description = {name: value for name, value in block.items() if name != "data"}
    if isinstance(resource, dict):
        description["resource"] = {name: value for name, value in resource.items() if name != "blob"}
    return msgspec.json.encode(description).decode()


def _image_of(block: dict[str, Any]) -> tuple[str, str] | None:
    kind, data = block.get("mimeType"), block.get("data")
    if block.get("type") == "image" and isinstance(kind, str) and kind.startswith("image/") and isinstance(data, str):
        return kind, data
    return None
