"""Model probe: small real requests that show what a model of an organization's own server can do.

Each capability is decided by an answer, never by a name: tools by a call of one, JSON schemas by a field that only the
schema names, images by the color of one. A capability that no answer decides is left out, with the reason for people.
Every answer is hostile input, bounded as those of discovery are.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from itertools import islice
from struct import pack
from typing import Any, Final
from zlib import compress, crc32

import msgspec

from apps.keys.model_discovery import Pace, ServerConversation, Unanswered, words_of
from apps.keys.own_models import Probe
from apps.keys.ssrf_guard import SafeAddress

# A model may be loaded first, and thinks on one processor: seconds of one answer, and of all.
PACE: Final = Pace(between_bytes=40.0, answer=40.0, all_answers=100.0)
# Tokens of an answer: enough to think before a call of a tool.
_FEW, _MANY = 64, 1_200
MAX_NOTE: Final = 200
# Events of a stream that are read: far more than an answer of so few tokens has.
_MAX_EVENTS: Final = 2_000
# Fields in which servers write thinking, of a message or a delta.
THINKING_FIELDS: Final = ("reasoning_content", "reasoning", "thinking")
_NO_ANSWER: Final = "The server did not answer in time"
_SAYS_NO: Final = re.compile(r"support|require|not enabled", re.IGNORECASE)


def probe_model(address: SafeAddress, token: str, model: str, now: str) -> Probe:
    """Return what a model can do. Takes as long as the server does, at most about 100 seconds.

    Raises InvalidRequest where the server is not reached or refuses the credential.
    """
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with address.session() as session:
        conversation = ServerConversation(session, address.url, headers, token, PACE)
        # Raises for a server that is away: nothing would be learned of the model.
        conversation.list_models()
        return _Probing(conversation, token, model).run(now)


class _Probing:
    """The questions about one model, and what their answers showed."""

    def __init__(self, server: ServerConversation, token: str, model: str) -> None:
        self._server, self._token, self._model = server, token, model
        self.results: dict[str, bool] = {}
        self.notes: dict[str, str] = {}
        self.thinking_field: str | None = None
        self.reports_usage: bool | None = None

    def run(self, now: str) -> Probe:
        """Ask everything, and return the probe; `now` is its time."""
        self._probe_stream()
        if self.results.get("chat") is not False:
            self._probe_tools()
            self._probe_json_schema()
            self._probe_vision()
        self._probe_embedding()
        if self.thinking_field is not None:
            self.results["thinking"] = True
        return Probe(
            at=now,
            results=self.results,
            thinking_field=self.thinking_field,
            reports_usage=self.reports_usage,
            notes={name: words[:MAX_NOTE] for name, words in self.notes.items()},
        )

    def _probe_stream(self) -> None:
        """Stream an answer: whether the model chats, streams, thinks, and whether counts of tokens come."""
        body = self._ask("Say OK.", _FEW, stream=True, stream_options={"include_usage": True})
        status, answer = self._post("streaming", body)
        if status is None:
            return
        chunks = list(islice(_chunks_of(answer), _MAX_EVENTS)) if status < 300 else []
        choices = [_first_choice(one) for one in chunks]
        deltas = [one["delta"] for one in choices if isinstance(one.get("delta"), dict)]
        if deltas:
            self.results |= {"chat": True, "streaming": True}
            self.reports_usage = any(_has_counts(one) for one in chunks)
            self._find_thinking(deltas)
            return
        self.results["streaming"] = False
        self._note("streaming", status, answer, "The answer is not a stream of chat.completion.chunk")
        status, answer = self._post("chat", self._ask("Say OK.", _FEW))
        if status is None:
            return
        message = _message_of(answer) if status < 300 else {}
        self.results["chat"] = bool(message)
        if message:
            self.reports_usage = _has_counts(_read(answer))
            self._find_thinking([message])
        else:
            self._note("chat", status, answer, "The answer has no message")

    def _find_thinking(self, pieces: list[dict[str, Any]]) -> None:
        found = (
            name for name in THINKING_FIELDS if any(isinstance(one.get(name), str) and one[name] for one in pieces)
        )
        self.thinking_field = self.thinking_field or next(found, None)

    def _probe_tools(self) -> None:
        """Ask for two calls of a tool at once."""
        parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
        tool = {"name": "get_weather", "description": "Get the weather of one city", "parameters": parameters}
        question = "What is the weather in Paris and in Rome? Call get_weather once for each city, both at once."
        body = self._ask(question, _MANY, tools=[{"type": "function", "function": tool}], tool_choice="auto")
        status, answer = self._post("tools", body)
        if status is None:
            return
        message = _message_of(answer) if status < 300 else {}
        self._find_thinking([message])
        calls = message.get("tool_calls")
        calls = [one for one in calls if isinstance(one, dict)] if isinstance(calls, list) else []
        self.results["tools"] = bool(calls)
        if calls:
            self.results["parallel_tools"] = len(calls) > 1
            if len(calls) == 1:
                self.notes["parallel_tools"] = "The model made one call where two were asked for"
        else:
            self.results["parallel_tools"] = False
            self._note("tools", status, answer, "The model answered without a call of the tool")

    def _probe_json_schema(self) -> None:
        """Ask for an object whose field only the schema names."""
        schema = {
            "type": "object",
            "properties": {"hue_name": {"type": "string", "enum": ["red", "green", "blue"]}},
            "required": ["hue_name"],
            "additionalProperties": False,
        }
        form = {"type": "json_schema", "json_schema": {"name": "hue", "strict": True, "schema": schema}}
        status, answer = self._post("json_schema", self._ask("Name a color.", _MANY, response_format=form))
        if status is None:
            return
        text = _message_of(answer).get("content") if status < 300 else None
        try:
            written = json.loads(text) if isinstance(text, str) else None
        except (ValueError, RecursionError):
            written = None
        is_kept = isinstance(written, dict) and set(written) == {"hue_name"}
        self.results["json_schema"] = is_kept
        if not is_kept:
            self._note("json_schema", status, answer, "The answer does not follow the schema")

    def _probe_vision(self) -> None:
        """Show a red image, and ask for its color."""
        parts = [
            {"type": "text", "text": "What color is this image? Answer with one word."},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{b64encode(_RED).decode()}"}},
        ]
        status, answer = self._post("vision", self._ask(parts, _MANY))
        if status is None:
            return
        text = _message_of(answer).get("content") if status < 300 else None
        sees = isinstance(text, str) and "red" in text.lower()
        self.results["vision"] = sees
        if not sees:
            self._note("vision", status, answer, "The answer does not name the color of the image")

    def _probe_embedding(self) -> None:
        status, answer = self._post("embedding", {"model": self._model, "input": "a"}, "/embeddings")
        if status is None:
            return
        data = _read(answer).get("data") if status < 300 else None
        first = data[0] if isinstance(data, list) and data and isinstance(data[0], dict) else {}
        vector = first.get("embedding")
        self.results["embedding"] = isinstance(vector, list | str) and len(vector) > 0
        if not self.results["embedding"]:
            self._note("embedding", status, answer, "The answer has no vector")

    def _ask(self, content: Any, max_tokens: int, **fields: Any) -> dict[str, Any]:
        messages = [{"role": "user", "content": content}]
        return {"model": self._model, "messages": messages, "max_tokens": max_tokens, "temperature": 0, **fields}

    def _post(self, name: str, body: Mapping[str, Any], path: str = "/chat/completions") -> tuple[int | None, bytes]:
        """Return the status and body of an answer; None where it decides nothing, which is noted."""
        try:
            status, answer = self._server.post(path, body)
        except Unanswered:
            self.notes[name] = _NO_ANSWER
            return None, b""
        is_busy = status in {401, 403, 408, 429}
        # llama.cpp answers 500 to images and tools that it cannot take, and says so.
        if is_busy or (status >= 500 and not _SAYS_NO.search(words_of(answer, self._token))):
            self._note(name, status, answer, "")
            return None, b""
        return status, answer

    def _note(self, name: str, status: int, answer: bytes, otherwise: str) -> None:
        if status < 300:
            self.notes[name] = otherwise
            return
        words = words_of(answer, self._token)
        self.notes[name] = f"The server answered {status}{f': {words}' if words else ''}"


def _read(answer: bytes) -> dict[str, Any]:
    """Return an answer's JSON object; empty where it is none, or too large."""
    try:
        decoded = ServerConversation.decode(answer, "/chat/completions")
    except Unanswered:
        return {}
    return decoded if isinstance(decoded, dict) else {}


def _first_choice(answer: Mapping[str, Any]) -> dict[str, Any]:
    choices = answer.get("choices")
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}


def _message_of(answer: bytes) -> dict[str, Any]:
    message = _first_choice(_read(answer)).get("message")
    return message if isinstance(message, dict) else {}


def _has_counts(answer: Mapping[str, Any]) -> bool:
    usage = answer.get("usage")
    return isinstance(usage, dict) and isinstance(usage.get("completion_tokens"), int)


def _chunks_of(answer: bytes) -> Iterator[dict[str, Any]]:
    """Yield the objects of a stream of server-sent events."""
    for line in answer.splitlines():
        if line.startswith(b"data:") and (data := line[5:].strip()) != b"[DONE]":
            yield _read(data)


def _png(red: int, green: int, blue: int, side: int = 64) -> bytes:
    """Return an image of one color."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return pack(">I", len(data)) + kind + data + pack(">I", crc32(kind + data))

    rows = (b"\0" + bytes((red, green, blue)) * side) * side
    header = pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", compress(rows)) + chunk(b"IEND", b"")


_RED: Final = _png(255, 0, 0)


def stored(probe: Probe) -> dict[str, Any]:
    """Return a probe as its column has it."""
    result: dict[str, Any] = msgspec.to_builtins(probe)
    return result
