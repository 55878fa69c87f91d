"""Tool guard: an organization's guardrails on tools' descriptions, arguments and results.

A description is read by a model as an instruction: one that a rule blocks takes its tool out of the list. It connects
tools, which guardrails do not know, with the rules, which the rest of the gateway does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from apps.gateway.access.policy import Policy
from apps.gateway.guard.documents import read_document
from apps.gateway.guard.json_text import JsonText
from apps.gateway.guard.request_guard import RequestGuard, blocked_error, redactions_of
from apps.guardrails.findings.scan_types import TOOL_RESULT, ScannedFile, Segment, Verdict
from apps.guardrails.findings.violation_draft import ViolationDraft
from apps.guardrails.scanning import engine
from apps.guardrails.text.scanned_text import ScannedText
from apps.kernel.concurrency.native_thread_pool import offload
from apps.mcp_servers.client import Tool, ToolAnswer

# The roles for rules: the model writes arguments, and neither operator nor user wrote the rest.
_MODEL, _TOOL = "assistant", TOOL_RESULT
# Members of a block of content that hold bytes in base64.
_BYTES: Final = ("data", "blob")


Kept = TypeVar("Kept")


class Screened(NamedTuple, Generic[Kept]):
    """A value behind guardrails: as it goes on, and as it is recorded, which is masked whole."""

    passed: Kept
    recorded: Kept


class ToolGuard:
    """The guardrails of one piece of work with tools, and what they found, to be recorded with it.

    With `for_model` the gateway calls a tool for a model of its own: what rules restore passes, as the tool needs the
    values, and the model's next request masks them.
    """

    def __init__(self, policy: Policy, *, for_model: bool = False) -> None:
        compiled = policy.guardrails
        self._for_model = for_model
        self._guard = None if compiled is None else RequestGuard(compiled, policy.retention)

    @property
    def violations(self) -> list[ViolationDraft] | None:
        """The findings; None where there are none."""
        return (self._guard.violations or None) if self._guard is not None else None

    def screen_tools(self, tools: Sequence[Tool]) -> list[Tool]:
        """Return the tools that may be shown, masked where rules say so; those that a rule blocks are left out."""
        if self._guard is None or not tools:
            return list(tools)
        read = [JsonText(tool.definition) for tool in tools]
        segments = [
            Segment(ScannedText(one.text), _TOOL, f"tools.{tool.name}") for one, tool in zip(read, tools, strict=True)
        ]
        verdict = self._screen(segments)
        # A tool that was cut is not what its server offers.
        findings = tuple(
            replace(one, action="block") if one.action == "neutralize" else one for one in verdict.findings
        )
        verdict = replace(verdict, findings=findings)
        self._guard.record_findings(verdict, segments)
        redactions = redactions_of(verdict, segments)
        left_out = {one.segment for one in verdict.findings if one.action == "block" and not one.observed}
        shown = []
        for index, tool in enumerate(tools):
            if index not in left_out:
                definition = read[index].redact(redactions.get(index, ()))
                # A tool under another name than the server's cannot be called.
                if definition.get("name") == tool.name:
                    shown.append(Tool(tool.name, definition))
        return shown

    def screen_arguments(self, arguments: dict[str, Any]) -> Screened[dict[str, Any]]:
        """Return arguments, which may be changed, masked where rules say so. Raises InvalidRequest when one blocks."""
        return self._screened(arguments, _MODEL, "arguments", [])

    def screen_result(self, result: ToolAnswer) -> Screened[ToolAnswer]:
        """Return a result, which may be changed, masked where rules say so. Raises InvalidRequest when one blocks."""
        whole: dict[str, Any] = {"content": result.content}
        if result.structured is not None:
            whole["structuredContent"] = result.structured
        screened = self._screened(whole, _TOOL, "result", _files_in(result.content) if self._guard else [])
        return Screened(
            *(ToolAnswer(one["content"], one.get("structuredContent"), result.is_error) for one in screened)
        )

    def _screened(
        self, value: dict[str, Any], role: str, place: str, files: Sequence[ScannedFile]
    ) -> Screened[dict[str, Any]]:
        if self._guard is None:
            return Screened(value, value)
        read = JsonText(value)
        segments = [Segment(ScannedText(read.text), role, place, parts_of=read.parts_of)]
        verdict = self._screen(segments, files)
        self._guard.record_findings(verdict, segments, files)
        if verdict.blocked is not None:
            raise blocked_error(verdict.blocked, segments, files)
        redactions = redactions_of(verdict, segments).get(0, [])
        passed = msgspec.json.decode(msgspec.json.encode(value)) if self._for_model and redactions else None
        masked: dict[str, Any] = read.redact(redactions)
        if passed is None:
            return Screened(masked, masked)
        return Screened(JsonText(passed).redact([one for one in redactions if one.label is None]), masked)

    def _screen(self, segments: Sequence[Segment], files: Sequence[ScannedFile] = ()) -> Verdict:
        if self._guard is None:
            return Verdict()
        size = sum(len(segment.text.raw) for segment in segments) + sum(file.size for file in files)
        return offload(size, partial(engine.screen, self._guard.compiled, segments, files))


def _files_in(content: Sequence[dict[str, Any]]) -> list[ScannedFile]:
    """Return the images, audio and embedded files of a result."""
    found = []
    for number, block in enumerate(content):
        resource = block.get("resource")
        holder = resource if isinstance(resource, dict) else block
        for name in _BYTES:
            written, kind = holder.get(name), holder.get("mimeType")
            if isinstance(written, str):
                document = read_document(written, kind if isinstance(kind, str) else "")
                found.append(
                    ScannedFile(
                        declared_type=document.media_type,
                        data=document.data,
                        size=len(document.data or b""),
                        address=document.address,
                        place=f"result[{number}]",
                    )
                )
    return found
