"""Google generateContent, provider side: drops request fields that Google does not support, with a note, or replaces
them.

Knows facts. Must never know a model by name.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, FunctionTool, Reasoning, ReasoningRequest, Target
from apps.gateway.dialects.adapting.foreign_blocks import drop_foreign_blocks
from apps.gateway.dialects.adapting.schemas import UnsupportedSchema, object_root
from apps.gateway.dialects.adapting.structured_output_tool import add_structured_output_tool
from apps.gateway.dialects.adapting.tool_names import adapt_tool_names
from apps.gateway.dialects.adapting.unsupported_fields import (
    note_dropped,
    note_unsupported_fields,
    note_unsupported_hints,
    repair_tool_results,
    unsupported_feature,
)
from apps.gateway.dialects.chat.google.provider.flavor import Flavor
from apps.gateway.dialects.chat.google.provider.function_names import LONGEST, SPEAKABLE
from apps.gateway.dialects.chat.google.shared.wire import NAME, SIGNATURE_FORMAT

# Hints and bookkeeping that the format has no words for.
_HINTS = ("logit_bias", "verbosity", "prediction", "store", "prompt_cache_key", "user", "metadata")


def drop_unsupported_fields(chat: Chat, flavor: Flavor, target: Target) -> Chat:
    """Return the chat as Google can be told it; what is left out is noted."""
    chat = repair_tool_results(drop_foreign_blocks(chat, target, NAME), target, runs=True)
    note_unsupported_fields(chat, target, NAME, marks=False, names=False, details=False, thinking=_goes_back(chat))
    note_unsupported_hints(chat, target, *_HINTS)
    chat = adapt_tool_names(_with_objects(chat), target, SPEAKABLE, LONGEST)
    form = chat.response_format
    if form is not None and form.kind == "json_schema" and target.facts.get("structured_outputs") == "tool":
        chat = add_structured_output_tool(chat, target)
    asked = chat.reasoning or ReasoningRequest()
    if chat.effort is not None and asked.effort is None and asked.max_tokens is None:
        if flavor.reasoning_efforts or flavor.reasoning_budget is not None:
            return replace(chat, reasoning=replace(asked, effort=chat.effort))
        note_dropped(chat, target, "effort", "not available from this model's provider")
    return chat


def _goes_back(chat: Chat) -> Callable[[Reasoning], bool]:
    """Return which thinking goes back: what Google signed, and all that was said in its own format."""
    if chat.dialect == NAME:
        return lambda block: block.format in (None, SIGNATURE_FORMAT)
    return lambda block: block.signature is not None and block.format == SIGNATURE_FORMAT


def _with_objects(chat: Chat) -> Chat:
    for at, tool in enumerate(chat.tools or ()):
        if isinstance(tool, FunctionTool):
            try:
                object_root(tool.parameters)
            except UnsupportedSchema:
                raise unsupported_feature(
                    chat, f"tools[{at}]", "A function's parameters must be an object for this model's provider"
                ) from None
    return chat
