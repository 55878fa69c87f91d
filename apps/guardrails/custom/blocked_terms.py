"""Custom rule type `blocked_terms` (deny list): texts that contain one of a list of terms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from apps.guardrails.custom import BadConfig, fields_of, read_texts
from apps.guardrails.custom.custom_regex import ExpressionMatcher, OwnedExpression, compile_pattern
from apps.guardrails.findings.scan_types import UNFINISHED, Span
from apps.guardrails.matching.aho_corasick import Phrase, PhraseMatcher
from apps.guardrails.regex.re2_matcher import TimeBudget
from apps.guardrails.text.normalization import normalized_forms
from apps.guardrails.text.scanned_text import ScannedText

TYPE, FIELD = "blocked_terms", "terms"
LABEL = "TERM"
MAX_TERMS = 1000
MAX_TERM_LENGTH = 200
# The characters of all terms of an organization.
MAX_CHARACTERS = 200_000
MATCH_TYPES = ("exact", "contains", "regex")


def read_config(config: object) -> dict[str, Any]:
    """Return `{terms, matchType, caseSensitive}`, each term once. Raises BadConfig."""
    fields = fields_of(config)
    terms = read_texts(fields.get("terms"), "terms", most=MAX_TERMS, longest=MAX_TERM_LENGTH, fewest=1)
    match_type = fields.get("matchType", "contains")
    if match_type not in MATCH_TYPES:
        raise BadConfig("matchType", f"Must be one of {', '.join(MATCH_TYPES)}")
    case_sensitive = fields.get("caseSensitive", False)
    if not isinstance(case_sensitive, bool):
        raise BadConfig("caseSensitive", "Must be true or false")
    for index, term in enumerate(terms):
        if match_type == "regex":
            compile_pattern(term, f"terms[{index}]")
        elif not any(form.strip() for form in normalized_forms(term)):
            raise BadConfig(f"terms[{index}]", "Must contain something visible")
    return {"terms": list(dict.fromkeys(terms)), "matchType": match_type, "caseSensitive": case_sensitive}


class TermMatcher:
    """The terms of many rules; a rule's index is its place in the configurations."""

    def __init__(self, configs: Sequence[dict[str, Any]]) -> None:
        phrases, expressions = [], []
        for index, config in enumerate(configs):
            cased, whole = config["caseSensitive"], config["matchType"] == "exact"
            if config["matchType"] == "regex":
                expressions += [
                    OwnedExpression(index, term, term if cased else f"(?i:{term})") for term in config["terms"]
                ]
            else:
                phrases += [Phrase(index, term, whole, cased) for term in config["terms"]]
        if sum(len(phrase.text) for phrase in phrases) > MAX_CHARACTERS:
            raise BadConfig("terms", f"All terms together have more than {MAX_CHARACTERS} characters")
        self._phrases = PhraseMatcher(phrases)
        self._expressions = ExpressionMatcher(expressions, "terms", LABEL)

    @property
    def max_bytes(self) -> int:
        """Bytes that it takes at most."""
        return self._phrases.max_bytes + self._expressions.max_bytes

    def find(self, text: ScannedText, budget: TimeBudget) -> Iterator[tuple[int, Span]]:
        """Yield every occurrence: a rule's index and the span."""
        for found in self._phrases.find(text):
            yield found.owner, Span(found.start, found.end, found.phrase or UNFINISHED, LABEL)
        yield from self._expressions.find(text, budget)


compile_rules = TermMatcher
