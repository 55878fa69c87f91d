"""Reading answers of any format: errors (unreadable JSON, truncated streams, error objects in place of content), and
the counts and amounts of usage.

A prompt that is too long is recognized by each provider's words for it, and reported in those that a client's agent
looks for, which then compacts the conversation and continues. An invalid count never costs the answer beside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from decimal import Decimal
from typing import Any, Final, Protocol, TypeVar

import msgspec

from apps.gateway.canonical.events import Event, Failed, Waiting
from apps.gateway.dialects import Failure
from apps.gateway.failures import retry_after_in
from apps.kernel.errors import AllProvidersFailed, ApiError, InvalidRequest, UpstreamRefused

# OpenAI's clients look for this code.
CODE: Final = "context_length_exceeded"
# Claude Code looks for these words, or those of Anthropic's limit on input and answer together; clients of Google's
# and Bedrock's formats for Google's and Bedrock's.
ANTHROPIC_WORDS: Final = "prompt is too long"
GOOGLE_WORDS: Final = "The input token count exceeds the maximum number of tokens allowed"
BEDROCK_WORDS: Final = "Input is too long for requested model"
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


def bedrock_message(error: ApiError) -> str:
    """Return an error's message; of a prompt that is too long, with the words that Bedrock's clients look for."""
    if error.code != CODE or BEDROCK_WORDS in error.message:
        return error.message
    return f"{BEDROCK_WORDS}: {error.message}"


def message_with_field(error: ApiError) -> str:
    """Return an error's message for clients that show nothing else: it names the invalid field.

    Messages about a model name the model, and those about a prompt that is too long begin with words that agents look
    for: both stay as they are.
    """
    field = error.param
    if not isinstance(error, InvalidRequest) or field in (None, "", "model") or error.code == CODE:
        return error.message
    named = re.search(rf"(?<![\w.\]]){re.escape(field)}(?!\w)", error.message)
    return error.message if named else f"{field}: {error.message}"


# Some providers answer with a page of HTML, or quote the whole request.
MAX_ERROR_LENGTH = 2_000
_HALVES = re.compile("[\ud800-\udfff]")
_DECODER = msgspec.json.Decoder()


def read_answer(body: bytes) -> Any:
    """Return the JSON value of a provider's answer. Raises ValueError.

    Providers get away with what clients do not: half of a surrogate pair, raw control characters, bytes that are no
    UTF-8, and NaN (which becomes null).
    """
    try:
        return _DECODER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        value = json.loads(body.decode("utf-8", "replace"), strict=False, parse_constant=lambda _: None)
        return _DECODER.decode(_HALVES.sub("\ufffd", json.dumps(value, ensure_ascii=False)))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from None


def read_refusal(status: int, body: bytes, find_failure: Callable[[Any], Failure | None]) -> Failure:
    """Return what `find_failure` finds in an answer that is not 2xx, else that it has this status."""
    try:
        answer = read_answer(body)
    except ValueError:
        answer = None
    found = find_failure(answer)
    return found or Failure(message=f"The provider answered with status {status}", code=code_of_status(status))


def failure_event(failure: Failure, status: int) -> Failed:
    """Return the end of an answer that holds an error: the request's own fault, or the provider's (429 and 5xx)."""
    status = status_of(failure.code, status)
    if status < 500 and status != 429:
        error: ApiError = UpstreamRefused(failure.message, status=status, code=failure.code, param=failure.param)
    else:
        wait = failure.retry_after
        if wait is None and status == 429:
            wait = retry_after_in(failure.message)
        code = failure.code or "upstream_error"
        error = AllProvidersFailed(failure.message, status=status, code=code, retry_after=wait)
    return Failed(error=error)


def unreadable_answer(message: str) -> Failed:
    """Return the end of an answer that cannot be read."""
    return Failed(error=AllProvidersFailed(message, code="upstream_broken"))


def truncated_answer() -> Failed:
    """Return the end of an answer that stopped in the middle."""
    return Failed(error=AllProvidersFailed("The provider's answer ended before it was complete", code="upstream_cut"))


def drain_frames(frames: Iterator[bytes]) -> None:
    """Read to the end of a complete answer, so that the connection can be reused; unless the provider is too slow.
    A connection error now is not the answer's failure."""
    with suppress(Exception):
        while next(frames, None):
            pass


class StreamedAnswer(Protocol):
    """The state of a streamed answer that was read so far."""

    over: bool
    failed: bool

    def read(self, frame: bytes) -> list[Event]:
        """Return the events of a frame."""

    def cut(self) -> list[Event]:
        """Return the last events of an answer whose frames end before it is over."""


def stream_reader(
    begin: Callable[[], StreamedAnswer], end_mark: bytes | None = None
) -> Callable[[Iterable[bytes]], Iterator[Event]]:
    """Return a provider side's `read_events`; after the frame `end_mark` there are no more."""

    def read_events(frames: Iterable[bytes]) -> Iterator[Event]:
        """Yield the events of a streamed answer; an empty frame is silence and becomes `Waiting`.

        An answer that breaks off, holds an error or cannot be read ends with `Failed`.
        """
        answer = begin()
        frames = iter(frames)
        for frame in frames:
            if not frame:
                yield Waiting()
                continue
            if end_mark is not None and frame.strip() == end_mark:
                break
            yield from answer.read(frame)
            if answer.over:
                if not answer.failed:
                    drain_frames(frames)
                return
        yield from answer.cut()

    return read_events


T = TypeVar("T")


def read_whole(body: bytes, kind: type[T], what: str) -> T | Failed:
    """Return a whole answer as what it has to be, else the failure of one without the `what` that was asked for."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return unreadable_answer(f"The provider sent an answer that has no {what} in the way it should")


def never_streamed(frames: Iterable[bytes]) -> Iterator[Event]:
    """Yield the end of a streamed answer: none is ever asked for."""
    yield unreadable_answer("The provider streamed an answer that was requested whole")


# No request has a billion tokens, or units; a count beyond is a provider's bug.
_MAX_COUNT: Final = 10**9
# xAI's unit of money, in USD, and what no answer costs more than.
_TICK: Final = Decimal("1e-10")
_MAX_TICKS: Final = 100 * 10**10


def read_count(value: Any) -> int:
    """Return a count; 0 for invalid values: null, text, a boolean, a negative or an implausibly large number."""
    if type(value) is int and 0 <= value <= _MAX_COUNT:
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MAX_COUNT:
        return int(value)
    return 0


def has_odd_count(record: Any, *names: str, main: tuple[str, ...] = ()) -> bool:
    """Return whether something under one of these names is no count: text, a boolean, a fraction, less than nothing,
    more than can be. Null says that nothing was counted, except for what always is (`main`)."""
    if not isinstance(record, dict):
        return False
    for name in (*main, *names):
        value = record.get(name, 0)
        if type(value) is int and 0 <= value <= _MAX_COUNT:
            continue
        if value is None and name not in main:
            continue
        if type(value) is float and value.is_integer() and 0 <= value <= _MAX_COUNT:
            continue
        return True
    return False


def count_at(answer: Any, *path: str) -> int:
    """Return the count at a path of names through objects; 0 where there is none."""
    for name in path:
        answer = answer.get(name) if isinstance(answer, dict) else None
    return read_count(answer)


def read_ticks(reported: dict[str, Any]) -> Decimal | None:
    """Return what xAI says in its usage that an answer costs, in USD; None where it does not say, or what cannot be."""
    ticks = reported.get("cost_in_usd_ticks")
    return ticks * _TICK if type(ticks) is int and 0 <= ticks <= _MAX_TICKS else None


_ZERO = msgspec.Raw(b"0")


def exact_number(amount: Decimal) -> msgspec.Raw:
    """Return an amount as a JSON number with all of its digits and no exponent."""
    if not amount:
        return _ZERO
    text = format(amount, "f")
    return msgspec.Raw((text.rstrip("0").rstrip(".") if "." in text else text).encode() or b"0")
