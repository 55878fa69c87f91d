"""OpenAI's legacy completions: reads a request body into a chat of a message for each prompt; refusals name the
field.

Source: OpenAI's API reference for `/v1/completions` (November 2026).
"""

from __future__ import annotations

from typing import Any, Final

from apps.gateway.canonical.chat import Chat, DroppedField, Message, Text
from apps.gateway.dialects.chat.openai.client.read_request import FIELDS
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import Malformed, Reader, Record, boolean, filled_string, integer, string
from apps.gateway.dialects.reading.router_fields import take_router_fields
from apps.kernel.errors import InvalidRequest

NAME: Final = "completions"
# OpenAI's own bounds.
_MAX_CANDIDATES: Final = 20
_MAX_LOGPROBS: Final = 5
# Ours: each prompt is a call of its own, and all of them are made at once.
_MAX_PROMPTS: Final = 16
_MAX_ANSWERS: Final = 32
_TEXTS: Final = frozenset({"prompt", "suffix", "logit_bias"})
# Fields with the same meaning as in a chat.
_OF_CHATS: Final = (
    "model",
    "stream",
    "stream_options",
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "frequency_penalty",
    "presence_penalty",
    "stop",
    "seed",
    "n",
    "logit_bias",
    "user",
    "metadata",
    "service_tier",
    "prompt_cache_key",
)


def read_request(body: bytes) -> Chat:
    """Return the chat that a body asks for. Raises InvalidRequest naming the field."""
    return fields.read_body(body, _TEXTS, _read)


def _read(wire: Record) -> Chat:
    known, unknown = fields.read_known(wire, _READERS)
    take_router_fields(unknown, known)
    for name in ("model", "prompt"):
        if name not in known:
            raise Malformed("Required", name)
    n, prompts = known.get("n", 1), known.pop("prompt")
    if len(prompts) > 1 and len(prompts) * n > _MAX_ANSWERS:
        raise _refused("n", f"all prompts together are given {_MAX_ANSWERS} answers at most")
    if known.pop("best_of", n) != n:
        raise _refused("best_of", f"every answer that is made is given, so it may be {n} here, as n is")
    if known.pop("suffix", None):
        raise _refused("suffix", "a chat model cannot write what comes before a given text")
    likeliest = known.pop("logprobs", None)
    if likeliest is not None and known.get("echo"):
        raise _refused("echo", "no chat model reports the probabilities of the prompt's own tokens")
    # Not sent on: what a chat's format calls by that name may be something else.
    lost = [DroppedField(name[: fields.MAX_NAME_TOLD], "completions have no such option here") for name in unknown]
    dropped_fields = [*known.pop("dropped_fields", ()), *lost]
    return Chat(
        messages=[Message(role="user", parts=[Text(text=prompt)]) for prompt in prompts],
        include_usage=known.pop("stream_options", None),
        logprobs=None if likeliest is None else True,
        top_logprobs=likeliest or None,
        dropped_fields=dropped_fields or None,
        dialect=NAME,
        task="completions",
        **known,
    )


def _prompts(value: Any) -> list[str]:
    """Read the prompts: a text, or a list of some. Raises InvalidRequest for tokens."""
    if isinstance(value, str):
        return [filled_string(value)]
    if not isinstance(value, list):
        raise Malformed("must be a string, or an array of strings")
    if not value:
        raise Malformed("must not be empty")
    if isinstance(value[0], int | list):
        raise _refused("prompt", "arrays of tokens cannot be sent to chat models; send the text")
    if len(value) > _MAX_PROMPTS:
        raise Malformed(f"must be {_MAX_PROMPTS} prompts at most")
    return [fields.within(f"[{number}]", filled_string, prompt) for number, prompt in enumerate(value)]


def _refused(param: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{param}: {why}", code="unsupported_feature", param=param)


_READERS: Final[dict[str, Reader[Any]]] = {
    **{name: FIELDS[name] for name in _OF_CHATS},
    "prompt": _prompts,
    "echo": boolean,
    "suffix": string,
    "best_of": integer(1, _MAX_CANDIDATES),
    "logprobs": integer(0, _MAX_LOGPROBS),
}
