"""Google generateContent: the order of a whole answer's parts, where it is not the usual one.

The canonical language has one text, a list of images and a list of calls. A layout keeps the order of the parts in an
answer of Google's, and holds the parts that no other format has; all others are kept by kind and length alone, so that
masked content stays masked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from apps.gateway.dialects.reading.fields import Record

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
