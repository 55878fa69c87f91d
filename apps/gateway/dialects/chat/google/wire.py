"""Google generateContent, both sides: names on the wire, token usage, errors of providers, and the order of an answer's
parts.

Usage is read into disjoint classes. The prompt's count includes cached tokens; neither thinking nor the prompts of
Google's own tools are in the counts beside them. Nonsense is tolerated: every class is at least 0.

The canonical language has one text, a list of images and a list of calls. A layout keeps the order of the parts in an
answer of Google's where it is not the usual one, and holds the parts that no other format has; all others are kept by
kind and length alone, so that masked content stays masked.

The facts that a data file may state of a provider or model are here, too; docs/adding-a-dialect.md explains each.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

import msgspec

from apps.gateway.canonical.chat import Target, served_tier
from apps.gateway.canonical.events import Failed, FinishReason, Summary
from apps.gateway.dialects import Failure, fact
from apps.gateway.dialects.reading.answers import (
    MAX_ERROR_LENGTH,
    code_of,
    exact_number,
    failure_event,
    has_odd_count,
    read_count,
    read_refusal,
)
from apps.gateway.dialects.reading.fields import Record
from apps.gateway.failures import retry_delay_of
from apps.kernel.usage import Usage

NAME: Final = "google"
FRAMING: Final = "sse"

# How thinking that only Gemini can verify is marked on its way through clients; others use the same word.
SIGNATURE_FORMAT: Final = "google-gemini-v1"
# The id of a block of thinking that is nothing but the signature of a text, or (with its number) of an image.
TEXT_SIGNATURE: Final = "text"
IMAGE_SIGNATURE: Final = "image-"

# Google's words for why a model stopped. A word not listed is taken for `stop`.
FINISH_REASONS: Final[dict[str, FinishReason]] = {
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "LANGUAGE": "content_filter",
    "OTHER": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "MODEL_ARMOR": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
    "IMAGE_OTHER": "content_filter",
}
# Google's word for why a model stopped, where another maker's did.
_WORDS: Final = {"length": "MAX_TOKENS", "content_filter": "SAFETY"}
# Words that say that the model's answer is of no use; asking again may help.
FAILURE_WORDS: Final = frozenset(
    {
        "MALFORMED_FUNCTION_CALL",
        "MALFORMED_RESPONSE",
        "UNEXPECTED_TOOL_CALL",
        "TOO_MANY_TOOL_CALLS",
        "MISSING_THOUGHT_SIGNATURE",
    }
)

encode = msgspec.json.Encoder().encode


def new_id(prefix: str) -> str:
    """Return an id for what Google gave none: the prefix and 24 characters."""
    return prefix + secrets.token_hex(12)


def without_none(**values: Any) -> Record:
    """Return the fields that are stated: null is never sent."""
    return {name: value for name, value in values.items() if value is not None}


def finish_word(reason: FinishReason, native: str | None) -> str:
    """Return Google's word for why a model stopped: the provider's own where it is one for the same."""
    meant = "stop" if reason == "tool_calls" else reason
    if native is not None and (native == "STOP" or native in FINISH_REASONS) and _meaning(native) == meant:
        return native
    return _WORDS.get(reason, "STOP")


def _meaning(word: str) -> FinishReason:
    return FINISH_REASONS.get(word, "stop")


def write_time(seconds: int) -> str:
    """Return a moment in Unix seconds as Google writes it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# The counts that make up the total.
_PARTS = ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "toolUsePromptTokenCount")
_MAIN, _BESIDE = _PARTS[:2], (*_PARTS[2:], "cachedContentTokenCount")
_DETAILS = ("promptTokensDetails", "cacheTokensDetails", "candidatesTokensDetails")


def read_usage(reported: Any, searches: int) -> Usage | None:
    """Return the counts, or None when none are reported; `searches` are the web searches seen so far."""
    if not isinstance(reported, dict):
        return None
    prompt, written = (
        read_count(reported.get("promptTokenCount")),
        read_count(reported.get("candidatesTokenCount")),
    )
    thought, tools = (
        read_count(reported.get("thoughtsTokenCount")),
        read_count(reported.get("toolUsePromptTokenCount")),
    )
    if not prompt + written + thought + tools:
        return None
    cached = min(read_count(reported.get("cachedContentTokenCount")), prompt)
    read, stored = _by_kind(reported, "promptTokensDetails"), _by_kind(reported, "cacheTokensDetails")
    fresh = prompt - cached
    audio = min(max(read.get("AUDIO", 0) - stored.get("AUDIO", 0), 0), fresh)
    images = min(max(read.get("IMAGE", 0) - stored.get("IMAGE", 0), 0), fresh - audio)
    made = _by_kind(reported, "candidatesTokensDetails")
    audio_out = min(made.get("AUDIO", 0), written)
    images_out = min(made.get("IMAGE", 0), written - audio_out)
    return Usage(
        input=fresh - audio - images + tools,
        cache_read=cached,
        cache_read_audio=min(stored.get("AUDIO", 0), cached),
        cache_read_image=min(stored.get("IMAGE", 0), cached - min(stored.get("AUDIO", 0), cached)),
        audio_input=audio,
        image_input=images,
        output=written - audio_out - images_out,
        reasoning=thought,
        audio_output=audio_out,
        image_output=images_out,
        web_searches=searches,
        estimated=has_odd_count(reported, *_BESIDE, main=_MAIN) or _has_odd_details(reported),
        service_tier=_tier(reported),
    )


def _has_odd_details(reported: Record) -> bool:
    for name in _DETAILS:
        details = reported.get(name)
        if any(has_odd_count(detail, "tokenCount") for detail in (details if isinstance(details, list) else ())):
            return True
    return False


def _tier(reported: Any) -> str:
    """Return the tier of service: AI Studio names it, Vertex AI calls it a kind of traffic."""
    traffic = reported.get("serviceTier") or reported.get("trafficType")
    return served_tier(traffic.lower().removeprefix("on_demand_")) if isinstance(traffic, str) else ""


def adds_up(reported: Any) -> bool:
    """Return whether counts hold a total that is the sum of the others."""
    if not isinstance(reported, dict) or not (total := read_count(reported.get("totalTokenCount"))):
        return False
    return total == sum(read_count(reported.get(name)) for name in _PARTS)


def write_usage(summary: Summary) -> Record:
    """Return `usageMetadata`: the prompts of a provider's own tools are part of the prompt. The cost in USD is beside
    the counts, where Google's clients skip it."""
    usage = summary.usage
    prompt, written, thought = usage.prompt_tokens, usage.completion_tokens - usage.reasoning, usage.reasoning
    read = {"AUDIO": usage.audio_input, "IMAGE": usage.image_input}
    made = {"AUDIO": usage.audio_output, "IMAGE": usage.image_output}
    wire: Record = {
        "promptTokenCount": prompt,
        "candidatesTokenCount": written,
        "totalTokenCount": prompt + written + thought,
        "promptTokensDetails": _details(prompt, read),
    }
    if usage.cache_read:
        wire["cachedContentTokenCount"] = usage.cache_read
    if any(made.values()):
        wire["candidatesTokensDetails"] = _details(written, made)
    if thought:
        wire["thoughtsTokenCount"] = thought
    return {**wire, "costUsd": {part: exact_number(amount) for part, amount in summary.cost.items()}}


def _details(count: int, others: dict[str, int]) -> list[Record]:
    """Return of which kinds tokens are: text where nothing else is said."""
    kinds = {"TEXT": count - sum(others.values()), **others}
    return [{"modality": kind, "tokenCount": number} for kind, number in kinds.items() if number > 0]


def _by_kind(reported: Record, name: str) -> dict[str, int]:
    details = reported.get(name)
    counts: dict[str, int] = {}
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and isinstance(kind := detail.get("modality"), str):
            counts[kind] = counts.get(kind, 0) + read_count(detail.get("tokenCount"))
    return counts


def read_failure(status: int, body: bytes) -> Failure:
    """Return what Google says in an answer that is not 2xx."""
    return read_refusal(status, body, find_failure)


def find_failure(answer: Any) -> Failure | None:
    """Return the error in an answer, or None when there is none in it. Some answer with a list of one."""
    error = _error_in(answer)
    if error is None:
        return None
    message = error.get("message")
    if not isinstance(message, str) or not message:
        message = "The provider gave no reason"
    code = _reason(error) or error.get("status")
    return Failure(
        message=message[:MAX_ERROR_LENGTH],
        code=code_of(message, code if isinstance(code, str) and code else None),
        # Google says 400 of a credential that it does not know, as if the request were wrong.
        status=401 if code == "API_KEY_INVALID" else None,
        retry_after=retry_delay_of(error.get("details")),
    )


def failed(answer: Any, failure: Failure) -> Failed:
    """Return the end of an answer that holds an error, with the status that Google gives it, else 502."""
    code = (_error_in(answer) or {}).get("code")
    return failure_event(failure, code if isinstance(code, int) and 400 <= code <= 599 else 502)


def _error_in(answer: Any) -> Record | None:
    if isinstance(answer, list) and answer:
        answer = answer[0]
    error = answer.get("error") if isinstance(answer, dict) else None
    return error if isinstance(error, dict) and error else None


def _reason(error: Record) -> Any:
    """Return the reason that the details state, which is narrower than the status (`API_KEY_INVALID`)."""
    details = error.get("details")
    reasons = [
        detail.get("reason") for detail in (details if isinstance(details, list) else ()) if isinstance(detail, dict)
    ]
    return next((reason for reason in reasons if reason), None)


# In this order parts are written without a layout.
_ORDER: Final = ("thought", "text", "audio", "image", "call")


class Layout:
    """The order of the parts of an answer, as far as it was read."""

    def __init__(self) -> None:
        self._entries: list[Record] = []

    def add(self, kind: str, length: int = 0, *, signed: bool = False) -> None:
        """Note a part, or so many more characters of the same text; `signed`: a signature ends it."""
        last = self._entries[-1] if self._entries else {}
        if length and kind in last and "signed" not in last:
            last[kind] += length
        elif not length and kind == "text" and signed and "text" in last and "signed" not in last:
            pass
        else:
            self._entries.append({kind: length})
        if signed:
            self._entries[-1]["signed"] = True

    def add_own(self, part: Record) -> None:
        """Note a part that only Google has."""
        self._entries.append({"part": part})

    @property
    def entries(self) -> list[Record] | None:
        """The layout; None where it is the usual one, of one text."""
        kinds = [next(iter(entry)) for entry in self._entries]
        if "part" in kinds or kinds.count("text") > 1:
            return self._entries
        places = list(map(_ORDER.index, kinds))
        return None if places == sorted(places) else self._entries


def laid_out(parts: list[Record], layout: Any) -> list[Record]:
    """Return an answer's parts, given in the usual order, in the layout's order. If it does not fit them (a guardrail
    has changed them), they keep their order, behind the parts that only Google has."""
    entries = [entry for entry in layout if isinstance(entry, dict)] if isinstance(layout, list) else []
    own = [part for entry in entries if isinstance(part := entry.get("part"), dict)]
    try:
        return list(_fitted(parts, entries))
    except _Unfit:
        return [*own, *parts]


class _Unfit(Exception):
    """A layout of other parts than these."""


def _fitted(parts: list[Record], entries: list[Record]) -> Iterator[Record]:
    texts = {"thought": "", "text": ""}
    signatures: dict[str, list[str]] = {"thought": [], "text": []}
    others: dict[str, list[Record]] = {"audio": [], "image": [], "call": []}
    for part in parts:
        kind = kind_of(part)
        if kind in texts:
            texts[kind] += part["text"]
            signatures[kind] += [part["thoughtSignature"]] if "thoughtSignature" in part else []
        else:
            others[kind].append(part)
    for entry in entries:
        kind, stated = next(iter(entry.items()))
        if kind == "part":
            yield stated
        elif kind in texts:
            if len(texts[kind]) < stated or (entry.get("signed") and not signatures[kind]):
                raise _Unfit
            wire: Record = {"text": texts[kind][:stated], **({"thought": True} if kind == "thought" else {})}
            texts[kind] = texts[kind][stated:]
            yield {**wire, "thoughtSignature": signatures[kind].pop(0)} if entry.get("signed") else wire
        elif not others.get(kind):
            raise _Unfit
        else:
            yield others[kind].pop(0)
    if any(texts.values()) or any(signatures.values()) or any(others.values()):
        raise _Unfit


def kind_of(part: Record) -> str:
    """Return of which kind a part is."""
    if "functionCall" in part:
        return "call"
    if "inlineData" in part or "fileData" in part:
        media = part.get("inlineData") or part["fileData"]
        return "audio" if str(media.get("mimeType", "")).startswith("audio/") else "image"
    return "thought" if part.get("thought") else "text"


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a data file may state of a model."""

    reasoning_efforts: Annotated[
        tuple[str, ...],
        fact("the model takes a level of thinking, named by the effort; so does one that states no budget either"),
    ] = ()
    reasoning_budget: Annotated[
        dict[str, int] | None,
        fact("the model takes a budget of tokens for thinking: an effort becomes one within these bounds"),
    ] = None
    takes: Annotated[
        frozenset[str],
        fact("`search_with_tools`: a web search beside functions, which is refused otherwise"),
    ] = frozenset()

    @property
    def thinking(self) -> Literal["level", "budget"]:
        """How the depth of thinking is asked for; a model of which nothing is said is a new one."""
        return "budget" if self.reasoning_budget is not None and not self.reasoning_efforts else "level"

    @property
    def requires_signatures(self) -> bool:
        """Whether a call in the history needs a thought signature: models that know levels insist."""
        return self.thinking == "level"


def capabilities_of(target: Target) -> Capabilities:
    """Return how a chat has to be written for a target."""
    return msgspec.convert(target.facts, Capabilities)
