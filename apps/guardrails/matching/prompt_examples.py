"""Prompt examples: what a page about prompts shows in a block of code or a long string, and does not say itself.

Knows how pages and notebooks mark what they show, and which words tell that a page is about models. Must never know
what was found there or by which rule. Works on a normalized text, where line breaks are spaces. Everything is linear:
one pass for the blocks and one for the words, both made only when something was found.

A block alone excuses nothing, for anybody can put an order into one. It does where the text outside of it speaks of
prompts and models again and again: whoever reads that looks at an example.
"""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from itertools import islice

from apps.guardrails.regex.re2_patterns import compile_re2

# What opens and closes a block. A fence that names a language opens one, whatever stood before it.
_MARKS = compile_re2(r"`{3,}[a-z0-9_+-]*|~{3,}[a-z0-9_+-]*|\"{3}|'{3}|<pre[ >]|</pre>")
_OPENS_HTML, _CLOSES_HTML = b"<p", b"</"
# Longer ones are no examples: a whole page, or a mark that was left open.
_LONGEST = 6000
# Words of pages about models and prompts, and of hardly any others.
_WORDS = compile_re2(
    r"\b(?:llms?|(?:large )?language models?|(?:chat)?gpt(?:-?[0-9][a-z0-9.-]*)?|chatbots?|prompts?|prompting|openai"
    r"|anthropic|claude|(?:few|zero|one)-shot|tokeni[sz]ers?|chain-of-thought|mod[eè]les? de langage|sprachmodelle?n?"
    r"|modelos? de (?:lenguaje|linguagem)|modell[oi] (?:linguistic[oi]|di linguaggio)|dil modeli|model bahasa)\b"
    r"|mô hình ngôn ngữ|языков\pL+ модел|промпт|提示词|提示工程|语言模型|大模型|プロンプト|言語モデル|프롬프트"
    r"|언어 모델"
)
# Marks and words that are looked at; no page has more, and what comes after them is shown by nobody.
_MOST = 4000
# One word counts in a stretch of so many bytes, and so many stretches make a page that is about them.
_STRETCH, _ABOUT = 128, 6


class PromptExamples:
    """The examples of one text."""

    def __init__(self, utf8: bytes) -> None:
        """Take a normalized text."""
        self._utf8 = utf8

    def is_shown(self, start: int, end: int) -> bool:
        """Tell whether `utf8[start:end]` stands in a block of a text that speaks of prompts outside of it."""
        place = bisect_right(self._blocks, (start, len(self._utf8))) - 1
        if place < 0 or end > self._blocks[place][1]:
            return False
        first, last = self._blocks[place]
        inside = bisect_right(self._spoken, last) - bisect_left(self._spoken, first)
        return len(self._spoken) - inside >= _ABOUT

    @functools.cached_property
    def _blocks(self) -> list[tuple[int, int]]:
        """What stands between two marks of one kind, from left to right; none overlap."""
        blocks: list[tuple[int, int]] = []
        opened, start = b"", 0
        for match in islice(_MARKS.finditer(self._utf8), _MOST):
            mark, at = match[0], match.start()
            kind = mark[:2]
            too_long = at - start > _LONGEST
            if kind == opened and not mark[-1:].isalnum():
                if not too_long:
                    blocks.append((start, at))
                opened = b""
            elif kind != _CLOSES_HTML and (not opened or kind == opened or too_long):
                opened, start = (_CLOSES_HTML if kind == _OPENS_HTML else kind), match.end()
        return blocks

    @functools.cached_property
    def _spoken(self) -> list[int]:
        """Where the words of such a page stand, one of each stretch."""
        places: list[int] = []
        for match in islice(_WORDS.finditer(self._utf8), _MOST):
            if not places or match.start() - places[-1] >= _STRETCH:
                places.append(match.start())
        return places
