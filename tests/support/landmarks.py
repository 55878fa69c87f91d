"""Landmarks of a page, as a screen reader lists them, read from its HTML without a browser."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser
from typing import Final

_ROLES: Final = {"nav": "navigation", "aside": "complementary", "main": "main", "search": "search"}
# Landmarks only with a name.
_NAMED: Final = {"section": "region", "form": "form"}
_LANDMARKS: Final = frozenset({*_ROLES.values(), *_NAMED.values(), "banner", "contentinfo"})
_VOID: Final = frozenset({"area", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"})
_NOT_SHOWN: Final = frozenset({"template", "noscript", "dialog", "script", "style"})


def repeated_landmarks(page: str) -> list[tuple[str, str]]:
    """Return role and name of each landmark that a page has more than once, as axe's `landmark-unique` counts them."""
    counted = Counter(_Landmarks(page).named())
    return [one for one, count in counted.items() if count > 1]


class _Landmarks(HTMLParser):
    """Landmarks that are not hidden, in their order, with the texts that name them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self._found: list[tuple[str, dict[str, str]]] = []
        self._open: list[tuple[str, str, bool]] = []
        self._texts: dict[str, str] = {}
        self.feed(page)

    def named(self) -> list[tuple[str, str]]:
        return [(role, self._name(attributes)) for role, attributes in self._found]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        is_hidden = "hidden" in attributes or tag in _NOT_SHOWN or (bool(self._open) and self._open[-1][2])
        role = attributes.get("role") or _ROLES.get(tag, "")
        if not role and {"aria-label", "aria-labelledby"} & attributes.keys():
            role = _NAMED.get(tag, "")
        if role in _LANDMARKS and not is_hidden:
            self._found.append((role, attributes))
        if tag not in _VOID:
            self._open.append((tag, attributes.get("id", ""), is_hidden))

    def handle_endtag(self, tag: str) -> None:
        if tag in [name for name, _, _ in self._open]:
            while self._open.pop()[0] != tag:
                pass

    def handle_data(self, data: str) -> None:
        for _, identity, _ in self._open:
            if identity:
                self._texts[identity] = self._texts.get(identity, "") + data

    def _name(self, attributes: dict[str, str]) -> str:
        texts = [self._texts.get(identity, "") for identity in attributes.get("aria-labelledby", "").split()]
        return " ".join((" ".join(texts) or attributes.get("aria-label", "")).split()).lower()
