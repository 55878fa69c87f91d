"""Context overflow: recognize each provider's words for a prompt that is too long, and write those that a client's
agent looks for, which then compacts the conversation and continues."""

from __future__ import annotations

import re
from typing import Final

from apps.kernel.errors import ApiError

# OpenAI's clients look for this code.
CODE: Final = "context_length_exceeded"
# Claude Code looks for these words, or those of Anthropic's limit on input and answer together; clients of Google's
# format for Google's.
ANTHROPIC_WORDS: Final = "prompt is too long"
GOOGLE_WORDS: Final = "The input token count exceeds the maximum number of tokens allowed"
_ANTHROPIC_KNOWN: Final = re.compile(r"prompt is too long|exceed context limit", re.IGNORECASE)
_GOOGLE_KNOWN: Final = re.compile(r"exceeds the maximum number of tokens", re.IGNORECASE)

_WORDS: Final = (
    # OpenAI, Azure, DeepSeek, vLLM, OpenRouter, Bedrock's Llamas; xAI says "prompt length".
    r"(maximum|max) (context|prompt) length",
    # OpenAI's Responses, llama.cpp, llama-cpp-python, SGLang, Ollama.
    r"exceed(s|ed|ing)? (the )?(model's |available |maximum |max )*context (window|length|size|limit)",
    # Cloudflare.
    r"exceeded this model context window limit",
    # Anthropic, Azure, Fireworks, Bedrock, Databricks, and this gateway.
    r"(prompt|input|inputs) (is|are) too long",
    r"input token length too long",
    # Ollama.
    r"prompt too long",
    # SGLang, and vLLM's "decoder prompt".
    r"longer than the (maximum )?model('s)? (context )?length",
    r"longer than the maximum model length",
    r"model maximum context length",
    # vLLM's newer servers.
    r"the model's context length is only",
    # Groq, Cerebras, vLLM.
    r"reduce the length of (the|your) (input |)(messages|prompt|input)",
    # Moonshot.
    r"exceed(s|ed)? (the )?model('s)? token limit",
    # Z.ai.
    r"prompt exceeds max length",
    # Alibaba.
    r"range of input length should be",
    # MiniMax.
    r"context window exceeds limit",
    # Text Generation Inference, Together, Hugging Face.
    r"`inputs` tokens \+ `max_new_tokens` must be <=",
    r"`inputs` must have less than \d+ tokens",
    # Mistral.
    r"too large for model with \d+ maximum context",
    # Google.
    r"(input|prompt) token count.{0,40}exceeds",
    r"exceeds the maximum number of tokens",
    # Copilot.
    r"prompt token count of \d+ exceeds the limit",
    # LM Studio.
    r"loaded with context length of only",
    r"greater than the context length",
    r"cannot truncate prompt with n_keep",
    # Amazon's Nova.
    r"number of input tokens exceeds",
    r"too many input tokens",
    # Cohere.
    r"too many tokens: ",
    r"size limit exceeded by \d+ tokens",
    # Volcengine.
    r"exceed max message tokens",
)
_OVERFLOW: Final = re.compile("|".join(_WORDS), re.IGNORECASE)
# A limit on tokens in a span of time is said much alike.
_RATE: Final = re.compile(r"per (minute|day|hour|second)|rate limit|\bTPM\b|wait before trying", re.IGNORECASE)
_TOO_LARGE: Final = 413


def code_of(message: str, code: str | None) -> str | None:
    """Return the code of an error: the one for a prompt that is too long where its words say so."""
    return CODE if _OVERFLOW.search(message) and not _RATE.search(message) else code


def code_of_status(status: int) -> str | None:
    """Return the code of an error without words: some say with nothing but the status that a prompt is too long."""
    return CODE if status == _TOO_LARGE else None


def status_of(code: str | None, status: int) -> int:
    """Return the status of an error: some call a prompt that is too long a failure of their own."""
    return 400 if code == CODE and status >= 500 else status


def anthropic_message(error: ApiError) -> str:
    """Return an error's message; of a prompt that is too long, with the words that Anthropic's clients look for."""
    if error.code != CODE or _ANTHROPIC_KNOWN.search(error.message):
        return error.message
    return f"{ANTHROPIC_WORDS}: {error.message}"


def google_message(error: ApiError) -> str:
    """Return an error's message; of a prompt that is too long, with the words that Google's clients look for."""
    if error.code != CODE or _GOOGLE_KNOWN.search(error.message):
        return error.message
    return f"{GOOGLE_WORDS}: {error.message}"
