"""Toolset: a request's tools of registered MCP servers, offered to its model as functions under names of its own.

It maps each function to its server's tool. Calls are made one after the other for a model that asks for them; one that
fails is an answer too: the model gets the reason, in words for it, and goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Final

import gevent
import msgspec
from django.conf import settings

from apps.gateway.access.policy import Policy
from apps.gateway.canonical.events import Waiting
from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.gateway.tool_calls import ToolCaller, listings
from apps.gateway.tool_calls.call_tool import call_tool
from apps.kernel.errors import ApiError, ClientGone, InvalidRequest
from apps.mcp_servers.client import Tool, ToolAnswer
from apps.mcp_servers.models import McpServer
from apps.mcp_servers.tool_pins import joined_names

# Servers in one request.
MAX_SERVERS: Final = 20


class WantedServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server as a request names it: by its address, else by the name that it is registered under.

    `label` is what the request calls it, `place` and `field` are where it does.
    """

    label: str
    url: str | None
    place: str
    field: str
    is_wanted: Callable[[Tool], bool]


class OfferedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that is offered: `function` is what the model calls it, `label` what the request calls its server."""

    function: str
    label: str
    server: str
    tool: Tool


class Toolset:
    """All tools that a request offers, by function and by label."""

    def __init__(self, offered: Sequence[OfferedTool]) -> None:
        self.by_function = {one.function: one for one in offered}

    @property
    def stated_effects(self) -> dict[str, bool]:
        """Whether each function has effects, where its tool's annotations say so."""
        stated = {name: one.tool.has_effects for name, one in self.by_function.items()}
        return {name: has_effects for name, has_effects in stated.items() if has_effects is not None}

    def of(self, label: str) -> list[OfferedTool]:
        """Return the tools of the server that the request calls so."""
        return [one for one in self.by_function.values() if one.label == label]

    def function_of(self, label: str, tool: str) -> str | None:
        """Return the function that stands for a server's tool; None where it is not offered."""
        return next((one.function for one in self.of(label) if one.tool.name == tool), None)


def find_toolset(policy: Policy, caller: ToolCaller, wanted: Sequence[WantedServer], taken: frozenset[str]) -> Toolset:
    """Return the tools of the servers that a request names; `taken` are the names of its own tools.

    Raises InvalidRequest for a server that the key may not use, or that is named twice, and for a name that two tools
    would have; McpServerFailed, Overloaded, DatabaseError.
    """
    servers = listings.find_servers(policy)
    chosen = [(one, _server_of(one, servers)) for one in wanted]
    found: list[OfferedTool] = []
    labels: set[str] = set()
    names: set[str] = set()
    for one, server in chosen:
        if one.label in labels or server.name in names:
            raise _refused(one, "names a server that is named before")
        labels.add(one.label)
        names.add(server.name)
    for one, server in chosen:
        listing = listings.list_tools(policy, server, caller)
        for function, own in joined_names(server.name, listing.tools).items():
            if not one.is_wanted(listing.tools[own]):
                continue
            if function in taken:
                raise _refused(one, f"has a tool that would be called {function}, as one of the request's own tools is")
            found.append(OfferedTool(function=function, label=one.label, server=server.name, tool=listing.tools[own]))
    return Toolset(found)


def _server_of(wanted: WantedServer, servers: Sequence[McpServer]) -> McpServer:
    """Return the registered server that a request means. Raises InvalidRequest."""
    if wanted.url is None:
        same = [server for server in servers if server.name == wanted.label]
    else:
        address = wanted.url.rstrip("/")
        same = [server for server in servers if server.url.rstrip("/") == address]
    if not same:
        raise _refused(
            wanted, "is none of the MCP servers that this key may use; an admin registers them", "unknown_mcp_server"
        )
    return next((server for server in same if server.name == wanted.label), same[0])


def _refused(wanted: WantedServer, problem: str, code: str = "invalid_parameters") -> InvalidRequest:
    place = f"{wanted.place}.{wanted.field}"
    return InvalidRequest(f"{place}: {problem}", code=code, param=place)


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


def call_server_tool(
    caller: ToolCaller, asked: ServerCall, watch: ClientDisconnect
) -> Generator[Waiting, None, CallOutcome]:
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
