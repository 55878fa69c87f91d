"""Token estimate: about how many tokens a text or request is, before a call, and after one that reported no usage.

Four bytes of UTF-8 make a token of Latin script, code or JSON; of other scripts, what their characters weigh. Pure; an
estimate is always marked as one by its caller.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import assert_never

import msgspec

from apps.gateway.canonical.chat import (
    Audio,
    Chat,
    File,
    FunctionTool,
    Image,
    Opaque,
    OpaqueTool,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from apps.kernel.prices import PriceCard
from apps.kernel.usage import Usage

# The weight of text in twelfths of a token: so much a byte, and so much more or less a character of other scripts,
# found by its first byte. Measured with the o200k tokenizer: a letter of Greek, Cyrillic, Hebrew, Arabic, Indic
# scripts, Thai or Georgian is about a third of a token, one of Han, Kana or Hangul four fifths, an emoji one and a
# half.
WEIGHT_OF_TOKEN = 12
WEIGHT_OF_BYTE = 3
_OF_SCRIPTS = (
    (range(0xCD, 0xE0), -2),
    (range(0xE0, 0xE2), -5),
    (range(0xE3, 0xEE), 1),
    (range(0xF0, 0xF5), 6),
)
_OTHERS = tuple((bytes(set(range(256)) - set(first)), more) for first, more in _OF_SCRIPTS)
# Characters that are weighed at a time: other threads go on in between.
_STEP = 256 * 1024
TOKENS_PER_MESSAGE = 4
# An image of 1024 x 1024 costs between 765 (OpenAI) and 1,600 (Anthropic) tokens at the vendors' own formulae.
TOKENS_PER_IMAGE = 1_600
# A page of PDF is about 3 KB of base64 for text alone and some 2,000 tokens.
BASE64_BYTES_PER_FILE_TOKEN = 8
# A document that is only referred to, and not read yet.
TOKENS_PER_UNSEEN_FILE = 4_000
# Text with a blank less than every so many characters is no prose and no code but base64, hex or digits, of which a
# token holds two or three characters; shorter texts are not looked at.
_DENSE, _SHORTEST_DENSE = 64, 256
# An image in the best quality, not square, at OpenAI: the highest price of one where images are paid by the token.
TOKENS_PER_MADE_IMAGE = 6_240


def token_weight(text: str) -> int:
    """Return what a text weighs in twelfths of a token; the weights of its pieces add up to that of the whole."""
    if text.isascii():
        return len(text) * WEIGHT_OF_BYTE
    if len(text) > _STEP:
        return sum(token_weight(text[start : start + _STEP]) for start in range(0, len(text), _STEP))
    data = text.encode("utf-8", "surrogatepass")
    return len(data) * WEIGHT_OF_BYTE + sum(len(data.translate(None, others)) * more for others, more in _OTHERS)


def cut_to_weight(text: str, weight: int) -> str:
    """Return as much of a text's beginning as weighs no more."""
    if weight <= 0:
        return ""
    return text[: bisect_right(range(1, len(text) + 1), weight, key=lambda length: token_weight(text[:length]))]


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a text is."""
    return tokens_from_weight(token_weight(text))


def tokens_from_weight(weight: int) -> int:
    """Return the tokens of a weight, the last one whole."""
    return -(-weight // WEIGHT_OF_TOKEN)


def estimate_prompt_tokens(chat: Chat) -> int:
    """Return about how many tokens a model will read."""
    total = 0
    for message in chat.messages:
        total += TOKENS_PER_MESSAGE + sum(map(_part_tokens, message.parts))
    for tool in chat.tools or ():
        total += TOKENS_PER_MESSAGE
        if isinstance(tool, FunctionTool):
            total += (
                estimate_tokens(tool.name) + estimate_tokens(tool.description or "") + _json_tokens(tool.parameters)
            )
        elif isinstance(tool, OpaqueTool):
            total += _json_tokens(tool.data)
    if chat.response_format is not None:
        total += _json_tokens(chat.response_format.schema)
    if chat.embedding is not None and chat.embedding.tokens is not None:
        total += sum(map(len, chat.embedding.tokens))
    if chat.reranking is not None:
        # The query is read with each document.
        parts = chat.messages[0].parts
        total += _part_tokens(parts[0]) * max(len(parts) - 2, 0)
    return total


def estimate_usage(prompt_tokens: int, answer_tokens: int, images: int, prices: PriceCard) -> Usage:
    """Return an estimate of the usage of an answer without counts; images with a price of their own need none."""
    if images and prices.image is not None and prices.input is None and prices.output is None:
        return Usage(images=images)
    return Usage(
        input=prompt_tokens,
        output=answer_tokens,
        image_output=images * TOKENS_PER_MADE_IMAGE if prices.image is None else 0,
        images=images,
        estimated=True,
    )


def _json_tokens(value: object) -> int:
    return 0 if value is None else tokens_from_weight(len(msgspec.json.encode(value)) * WEIGHT_OF_BYTE)


def _read_tokens(text: str) -> int:
    """Return about how many tokens a whole text is that a model reads; one without blanks is not like others."""
    length = len(text)
    if length < _SHORTEST_DENSE or not text.isascii():
        return estimate_tokens(text)
    # Nearly always the first eighth has blanks enough for all of it; to count all of them takes eight times as long.
    if text.count(" ", 0, length // 8) * _DENSE >= length:
        return estimate_tokens(text)
    if (text.count(" ") + text.count("\n")) * _DENSE >= length:
        return estimate_tokens(text)
    return -(-length // 3)


def _part_tokens(part: Part) -> int:
    match part:
        case Text() | Refusal() | Reasoning():
            return _read_tokens(part.text)
        case Image():
            return TOKENS_PER_IMAGE
        case ToolCall():
            return estimate_tokens(part.name) + _read_tokens(part.arguments)
        case ToolResult():
            return sum(map(_part_tokens, part.parts))
        case Audio():
            return len(part.data) // BASE64_BYTES_PER_FILE_TOKEN
        case File():
            return len(part.data) // BASE64_BYTES_PER_FILE_TOKEN if part.data else TOKENS_PER_UNSEEN_FILE
        case Opaque():
            return _json_tokens(part.data)
        case _:
            assert_never(part)
