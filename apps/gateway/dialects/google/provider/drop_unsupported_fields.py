"""What Google cannot take of a chat: left out with a note, or brought about in another way.

Knows facts. Must never know a model by name.
"""

from __future__ import annotations

from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, FunctionTool, Reasoning, ReasoningRequest, Target
from apps.gateway.dialects.foreign_blocks import without_foreign_blocks
from apps.gateway.dialects.google.provider.flavor import Flavor
from apps.gateway.dialects.google.provider.function_names import LONGEST, SPEAKABLE
from apps.gateway.dialects.google.shared.wire import NAME, SEAL_FORMAT
from apps.gateway.dialects.hidden_tool import with_hidden_tool
from apps.gateway.dialects.schemas import Unsayable, object_root
from apps.gateway.dialects.tool_names import with_fitting_names
from apps.gateway.dialects.unsupported_fields import lose, lose_foreign, lose_stated, refusal, repaired

# Hints and bookkeeping that the format has no words for.
_HINTS = ("logit_bias", "verbosity", "prediction", "store", "prompt_cache_key", "user", "metadata")


def speakable(chat: Chat, flavor: Flavor, target: Target) -> Chat:
    """Return the chat as Google can be told it; what is left out is noted."""
    chat = repaired(without_foreign_blocks(chat, target, NAME), target, runs=True)
    lose_foreign(chat, target, NAME, marks=False, names=False, details=False, thinking=_is_sealed)
    lose_stated(chat, target, *_HINTS)
    chat = with_fitting_names(_with_objects(chat), target, SPEAKABLE, LONGEST)
    form = chat.response_format
    if form is not None and form.kind == "json_schema" and target.facts.get("structured_outputs") == "tool":
        chat = with_hidden_tool(chat, target)
    if chat.effort is not None and (chat.reasoning is None or chat.reasoning == ReasoningRequest()):
        if flavor.reasoning_efforts or flavor.reasoning_budget is not None:
            return replace(chat, reasoning=ReasoningRequest(effort=chat.effort))
        lose(chat, target, "effort", "not available from this model's provider")
    return chat


def _is_sealed(block: Reasoning) -> bool:
    """Return whether thinking goes back: that which is under Google's own seal."""
    return block.signature is not None and block.format == SEAL_FORMAT


def _with_objects(chat: Chat) -> Chat:
    for at, tool in enumerate(chat.tools or ()):
        if isinstance(tool, FunctionTool):
            try:
                object_root(tool.parameters)
            except Unsayable:
                raise refusal(
                    chat, f"tools[{at}]", "A function's parameters must be an object for this model's provider"
                ) from None
    return chat
