"""Bedrock Converse, provider side: writes content blocks, each with its cache point behind it.

Knows blocks and where a mark may stand. Thinking goes back only where it was signed, and only to a model that knows the
signature. Must never know turns.
"""

from __future__ import annotations

from base64 import b64encode

from apps.gateway.canonical.chat import (
    Audio,
    CacheMark,
    File,
    Image,
    Part,
    Reasoning,
    Refusal,
    Target,
    Text,
    ToolCall,
    ToolResult,
)
from apps.gateway.dialects.adapting.document_citations import wants_citations
from apps.gateway.dialects.chat.anthropic.shared.wire import SIGNATURE_FORMAT, read_input
from apps.gateway.dialects.chat.bedrock.provider.citations import write_cited_text
from apps.gateway.dialects.chat.bedrock.provider.flavor import Flavor
from apps.gateway.dialects.chat.bedrock.provider.write_media import Documents, write_audio, write_file, write_image
from apps.gateway.dialects.chat.bedrock.shared.wire import Record, refused, write_id

SAYS_NOTHING: Record = {"text": "."}


class Blocks:
    """Writes the blocks of one request: it knows the model, and the names that its documents have so far."""

    def __init__(self, target: Target, flavor: Flavor) -> None:
        self._target = target
        self._flavor = flavor
        self._documents = Documents()

    def write(self, part: Part, role: str, at: str) -> list[Record]:
        """Return a part's blocks; none for what says nothing here. `at` is the client's field.

        Raises InvalidRequest for what the format has no form for.
        """
        block = self._block(part, role, at)
        if block is None:
            return []
        return [block, *self.mark(part.cache, block, at)]

    def mark(self, mark: CacheMark | None, after: Record, at: str, word: str = "cache_points") -> list[Record]:
        """Return a cache mark to stand after a block; none where the model takes none there, which is a loss."""
        if mark is None:
            return []
        takes = self._flavor.takes
        if word not in takes:
            self._target.note_dropped(f"{at}.cache_control", "this model does not cache up to here")
            return []
        if "video" in after or ("document" in after and after["document"]["format"] != "pdf"):
            self._target.note_dropped(
                f"{at}.cache_control", "this model's provider takes no cache mark behind such a file"
            )
            return []
        point: Record = {"type": "default"}
        if mark.ttl == "1h" and "cache_1h" in takes:
            point["ttl"] = mark.ttl
        elif mark.ttl not in (None, "5m"):
            self._target.note_dropped(f"{at}.cache_control.ttl", "this model's cache is kept for five minutes")
        return [{"cachePoint": point}]

    def _block(self, part: Part, role: str, at: str) -> Record | None:
        match part:
            case Text() | Refusal():
                return self._text(part, role) if part.text.strip() else None
            case Reasoning():
                return self._thinking(part)
            case ToolCall():
                call = {"toolUseId": write_id(part.id), "name": part.name}
                return {"toolUse": {**call, "input": read_input(part.arguments)}}
            case ToolResult():
                return {"toolResult": self._result(part, at)}
            case Image() if role == "assistant":
                self._target.note_dropped(at, "this model's provider does not take back pictures that a model made")
                return None
            case Image():
                return write_image(part, at)
            case Audio():
                return write_audio(part, at)
            case File():
                return self._file(part, at)
            case _:
                raise refused(f"{at}: holds content that this model's provider has no form for", at)

    def _text(self, part: Text | Refusal, role: str) -> Record:
        """Return text; that of an earlier answer with its citations of documents, to a model that cites."""
        cited = None
        if part.extra and role == "assistant" and "citations" in self._flavor.takes:
            cited = write_cited_text(part.text, part.extra.get("citations"))
        return {"text": part.text} if cited is None else cited

    def _file(self, file: File, at: str) -> Record:
        """Return a file; of a document also what it is about, and that the answer is to cite it."""
        wire = write_file(file, self._documents, at)
        document, extra = wire.get("document"), file.extra or {}
        if document is None:
            return wire
        if isinstance(about := extra.get("context"), str) and about:
            document["context"] = about
        if wants_citations(extra):
            if "citations" in self._flavor.takes:
                document["citations"] = {"enabled": True}
            else:
                self._target.note_dropped(f"{at}.citations", "this model does not cite documents")
        return wire

    def _thinking(self, part: Reasoning) -> Record | None:
        """Return thinking under the signature of Claude's maker, who knows it on Bedrock and elsewhere alike."""
        if not self._flavor.signs_thinking or part.format not in (None, SIGNATURE_FORMAT):
            return None
        if part.data is not None:
            if part.format is None:
                return None
            return {"reasoningContent": {"redactedContent": b64encode(part.data.encode()).decode()}}
        if part.signature is None:
            return None
        return {"reasoningContent": {"reasoningText": {"text": part.text, "signature": part.signature}}}

    def _result(self, result: ToolResult, at: str) -> Record:
        """Return what a tool answered. A result that says nothing says "."; failure is said in words where the model
        knows no status."""
        content: list[Record] = []
        for part in result.parts:
            if isinstance(part, Audio):
                raise refused(f"{at}: a tool's answer cannot hold sound for this model's provider", at)
            if part.cache is not None:
                self._target.note_dropped(f"{at}.cache_control", "this provider takes no cache mark inside of a result")
            block = self._block(part, "tool", at)
            if block is not None:
                content.append(block)
        wire: Record = {"toolUseId": write_id(result.call_id), "content": content or [SAYS_NOTHING]}
        if result.is_error:
            if self._flavor.result_status:
                wire["status"] = "error"
            else:
                wire["content"] = [{"text": "The tool failed:"}, *content]
        return wire
