"""The gateway's own toolbox: `model_tools`, `list-models`, `generate-image` and `list-image-models`.

One struct for each tool's arguments or results is both parser and JSON schema.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from apps.gateway.client.client_disconnect import CancelSwitch
from apps.kernel.errors import InvalidRequest
from apps.mcp.protocol.toolbox import Caller, CallResult, Progress, UnknownTool
from apps.mcp.tools import list_models, model_tools

Shape = TypeVar("Shape", bound=msgspec.Struct)


def schema_of(shape: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON schema (2020-12) of a struct."""
    (reference,), parts = msgspec.json.schema_components([shape])
    name = reference["$ref"].rpartition("/")[2]
    whole: dict[str, Any] = parts.pop(name)
    whole.pop("title", None)
    if parts:
        whole["$defs"] = parts
    return whole


def read_arguments(shape: type[Shape], arguments: dict[str, Any]) -> Shape:
    """Return a tool's arguments. Raises InvalidRequest naming the invalid one."""
    try:
        return msgspec.convert(arguments, shape)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        param = place.removesuffix("`").lstrip(".") or None
        words = f"{param}: {problem}" if param else problem
        raise InvalidRequest(f"Invalid arguments: {words}", code="invalid_parameters", param=param) from None


# Hints of a tool that calls a model: costs money, changes nothing, is not repeatable, and reaches external services.
_ASKS: Final = {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False, "openWorldHint": True}
# Hints of a tool that only reads the gateway's data.
_TELLS: Final = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}


def _tool(name: str, title: str, description: str, reads: Any, answers: Any, hints: dict[str, bool]) -> dict[str, Any]:
    return {
        "name": name,
        "title": title,
        "description": description,
        "inputSchema": schema_of(reads),
        "outputSchema": schema_of(answers),
        "annotations": {"title": title, **hints},
    }


_TOOLS: Final = [
    _tool(
        model_tools.CHAT,
        "Ask a model",
        "Ask a language model of any provider through the gateway. Billed to the credential's project.",
        model_tools.ChatArguments,
        model_tools.ChatAnswer,
        _ASKS,
    ),
    _tool(
        list_models.NAME,
        "List models",
        "List the language models that this credential may use, with prices and context lengths.",
        list_models.ListArguments,
        list_models.ListedModels,
        _TELLS,
    ),
    _tool(
        model_tools.GENERATE_IMAGE,
        "Generate images",
        "Have a model generate one to four images. Billed to the credential's project.",
        model_tools.ImageArguments,
        model_tools.ImageAnswer,
        _ASKS,
    ),
    _tool(
        list_models.NAME_OF_IMAGES,
        "List image models",
        "List the image models that this credential may use.",
        list_models.ListArguments,
        list_models.ListedModels,
        _TELLS,
    ),
]


class GatewayTools:
    """The toolbox at `/mcp`."""

    name = "mcp"
    instructions = (
        "Models of every provider behind one address. list-models and list-image-models list them; chat and "
        "generate-image call them. Each request is billed and logged for the credential's project."
    )

    def list_tools(self, caller: Caller) -> list[dict[str, Any]]:
        """Return the tools, which are the same for all callers."""
        return _TOOLS

    def call_tool(
        self,
        caller: Caller,
        name: str,
        arguments: dict[str, Any],
        progress: Progress | None,
        cancelled: CancelSwitch,
    ) -> CallResult:
        """Call a tool. Raises UnknownTool, ApiError, ClientGone."""
        match name:
            case model_tools.CHAT:
                asked = read_arguments(model_tools.ChatArguments, arguments)
                return model_tools.chat(caller, asked, progress, cancelled)
            case model_tools.GENERATE_IMAGE:
                wanted = read_arguments(model_tools.ImageArguments, arguments)
                return model_tools.generate_image(caller, wanted, progress, cancelled)
            case list_models.NAME:
                return list_models.list_models(caller, read_arguments(list_models.ListArguments, arguments))
            case list_models.NAME_OF_IMAGES:
                return list_models.list_image_models(caller, read_arguments(list_models.ListArguments, arguments))
        raise UnknownTool
