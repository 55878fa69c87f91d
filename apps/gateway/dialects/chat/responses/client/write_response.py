"""OpenAI Responses, client side: the response object around the items, and usage with its cost.

Every field that OpenAI's own clients count on is there. What the gateway says of its own stands under `gateway`: here
`metadata` belongs to the client. Must never know items.
"""

from __future__ import annotations

import time
from typing import Any, Final

from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.events import Finished, Started, Summary
from apps.gateway.dialects.chat.openai.shared.wire import exact_number
from apps.gateway.dialects.chat.responses.client.asked import asked_of
from apps.gateway.dialects.chat.responses.shared.wire import NAME, new_id
from apps.kernel.errors import ApiError

Record = dict[str, Any]

# What a response says where its request did not, in OpenAI's own order.
_USUAL: Final[Record] = {
    "background": False,
    "conversation": None,
    "error": None,
    "frequency_penalty": 0.0,
    "incomplete_details": None,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "prompt_cache_retention": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": False,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}
# Fields that a response repeats as its request had them.
_REPEATED: Final = frozenset(_USUAL) - {"background", "conversation", "error", "incomplete_details", "store"}
_INCOMPLETE: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}
# Words for failures that OpenAI's clients know; any other failure is told by its status.
_CODES: Final = frozenset(
    {"server_error", "rate_limit_exceeded", "invalid_prompt", "context_length_exceeded", "insufficient_quota"}
)


class ResponseFrame:
    """What stands around the items of one answer."""

    def __init__(self, chat: Chat) -> None:
        self._asked = asked_of(chat)
        self._fields: Record = {**_USUAL, **_repeated(self._asked.fields), **self._asked.echo}
        self._id = self._asked.response_id
        self._created = 0
        self._model = chat.model
        self._more: Record = {}

    def start(self, event: Started) -> None:
        """Take in what is said of the whole answer at its beginning."""
        self._id = self._id or event.id
        self._created = event.created
        self._model = event.model or self._model
        self.learn(event.extra.get(NAME, {}))

    def learn(self, news: Record) -> None:
        """Take in what a provider of this format says of its whole answer."""
        self._more |= news

    def wire(self, status: str, output: list[Record], **news: Any) -> Record:
        """Return the response object as it is now."""
        self._id = self._id or new_id("resp_")
        self._created = self._created or int(time.time())
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "completed_at": None,
            **self._fields,
            "model": self._model,
            "output": output,
            "usage": None,
            **self._more,
            **news,
        }

    def finished(self, end: Finished, output: list[Record], summary: Summary) -> Record:
        """Return the response object of an answer that came to its end, whole or cut off."""
        self._model = str(summary.metadata.get("used_model") or self._model)
        reason = _INCOMPLETE.get(end.reason)
        news: Record = {"usage": write_usage(summary), "gateway": summary.metadata}
        if reason is not None:
            return self.wire("incomplete", output, incomplete_details={"reason": reason}, **news)
        return self.wire("completed", output, completed_at=max(int(time.time()), self._created), **news)

    def failed(self, error: ApiError, output: list[Record]) -> Record:
        """Return the response object of an answer that broke off."""
        return self.wire("failed", output, error={"code": code_of(error), "message": error.message})


def _repeated(fields: Record) -> Record:
    """Return what a response repeats of its request, in full where the request was brief."""
    repeated = {name: value for name, value in fields.items() if name in _REPEATED and value is not None}
    for name in ("reasoning", "text"):
        if isinstance(value := repeated.get(name), dict):
            repeated[name] = {**_USUAL[name], **value}
    if isinstance(tools := repeated.get("tools"), list):
        repeated["tools"] = [_tool(tool) for tool in tools]
    return repeated


def _tool(tool: Any) -> Any:
    """Return a tool as OpenAI repeats it: a function with all of its fields."""
    if isinstance(tool, dict) and tool.get("type") == "function":
        return {"description": None, "parameters": None, "strict": None, **tool}
    return tool


def code_of(error: ApiError) -> str:
    """Return OpenAI's word for a failure."""
    if error.code in _CODES:
        return error.code
    return "rate_limit_exceeded" if error.status == 429 else "server_error"


def write_usage(summary: Summary) -> Record:
    """Return `usage` with what it cost, in USD."""
    usage = summary.usage
    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    return {
        "input_tokens": prompt,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read,
            "cache_write_tokens": usage.cache_write + usage.cache_write_1h,
        },
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": prompt + completion,
        **{f"cost_usd_{part}": exact_number(amount) for part, amount in summary.cost.items()},
    }
