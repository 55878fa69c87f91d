"""Custom rule type `topic_restriction`: blocked topics, and allowed topics beside which nothing passes.

Organizations name the topics with their synonyms.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from apps.guardrails.custom import BadConfig, fields_of, read_texts
from apps.guardrails.findings.scan_types import DOCUMENT, Segment, Span
from apps.guardrails.findings.text_chunks import split_into_chunks
from apps.guardrails.matching.aho_corasick import Phrase, PhraseMatcher
from apps.guardrails.matching.stemming import LANGUAGES, StemMatcher, StemmedPhrase
from apps.guardrails.regex.re2_matcher import TimeBudget
from apps.guardrails.text.scanned_text import ScannedText

TYPE, FIELD = "topic_restriction", "blockedTopics"
LABEL = "TOPIC"
OFF_TOPIC = "off_topic"
MAX_TOPICS = 100
MAX_TOPIC_LENGTH = 500
MAX_SYNONYMS = 100
MAX_WORD_LENGTH = 100
# The words and phrases of all topics of an organization.
MAX_PHRASES = 5000
# Words of a text that says too little to be about anything, and of one that may follow up on an earlier one.
GREETING, FOLLOW_UP = 3, 8
_WORD = re.compile(r"\w+")


def read_config(config: object) -> dict[str, Any]:
    """Return `{blockedTopics, allowedTopics, synonyms, language}`. Raises BadConfig.

    A topic is a word or phrase, alone or with others that mean it: "gambling: casino, betting, slot machine".
    `synonyms` says the same the long way: `{"gambling": ["casino", …]}`.
    """
    fields = fields_of(config)
    read = {
        name: read_texts(fields.get(name, []), name, most=MAX_TOPICS, longest=MAX_TOPIC_LENGTH)
        for name in ("blockedTopics", "allowedTopics")
    }
    if not any(read.values()):
        raise BadConfig("blockedTopics", "Must name a topic, unless allowedTopics does")
    for name, topics in read.items():
        for index, topic in enumerate(topics):
            if not all(_WORD.search(ScannedText(phrase).normalized) for phrase in _phrases_of(topic, {})):
                raise BadConfig(f"{name}[{index}]", "Must consist of words, as in `gambling: casino, betting`")
    names = {name_of(topic) for topics in read.values() for topic in topics}
    synonyms = _read_synonyms(fields.get("synonyms", {}), names)
    language = fields.get("language", "english")
    if language not in LANGUAGES:
        raise BadConfig("language", f"Must be one of {', '.join(LANGUAGES)}")
    return {**read, "synonyms": synonyms, "language": language}


def name_of(topic: str) -> str:
    """Return a topic's name: what stands before the colon."""
    return topic.partition(":")[0].strip()


class _Topic(NamedTuple):
    rule: int
    name: str
    phrases: tuple[str, ...]


class _TopicFinder:
    """Topics found by their phrases as they are written, and by the stems of their words."""

    def __init__(self, topics: Sequence[tuple[str, _Topic]]) -> None:
        self._topics = [topic for _, topic in topics]
        by_language: defaultdict[str, list[StemmedPhrase]] = defaultdict(list)
        for owner, (language, topic) in enumerate(topics):
            by_language[language] += [StemmedPhrase(owner, phrase) for phrase in topic.phrases]
        self._stems = [StemMatcher(language, stems) for language, stems in by_language.items()]
        self._phrases = PhraseMatcher(
            Phrase(owner, phrase) for owner, (_, topic) in enumerate(topics) for phrase in topic.phrases
        )

    @property
    def max_bytes(self) -> int:
        """Bytes that it takes at most."""
        return self._phrases.max_bytes + sum(stems.max_bytes for stems in self._stems)

    def find(self, text: ScannedText) -> Iterator[tuple[_Topic, int, int]]:
        """Yield every mention as (topic, start, end)."""
        for found in self._phrases.find(text):
            yield self._topics[found.owner], found.start, found.end
        for stems in self._stems:
            for phrase, start, end in stems.find(text):
                yield self._topics[phrase.owner], start, end


# Roles of users' texts and of the files that they send.
_USERS = frozenset({"user", DOCUMENT})


class TopicMatcher:
    """The topics of many rules; a rule's index is its place in the configurations."""

    def __init__(self, configs: Sequence[dict[str, Any]]) -> None:
        blocked = [(config["language"], topic) for config, topic in _topics_of(configs, "blockedTopics")]
        allowed = [(config["language"], topic) for config, topic in _topics_of(configs, "allowedTopics")]
        if sum(len(topic.phrases) for _, topic in blocked + allowed) > MAX_PHRASES:
            raise BadConfig("blockedTopics", f"All topics together have more than {MAX_PHRASES} words and phrases")
        self._blocked, self._allowed = _TopicFinder(blocked), _TopicFinder(allowed)
        self._restricted = sorted({topic.rule for _, topic in allowed})

    @property
    def max_bytes(self) -> int:
        """Bytes that it takes at most."""
        return self._blocked.max_bytes + self._allowed.max_bytes

    def find(self, text: ScannedText, budget: TimeBudget) -> Iterator[tuple[int, Span]]:
        """Yield every mention of a blocked topic: a rule's index and the span."""
        for topic, start, end in self._blocked.find(text):
            yield topic.rule, Span(start, end, topic.name, LABEL)

    def find_in_conversation(self, segments: Sequence[Segment]) -> Iterator[tuple[int, int, Span]]:
        """Yield what users say beside the allowed topics: a rule's index, the segment's, and all of its text.

        The texts of one message count together. A message of fewer than `GREETING` words says nothing yet; one of up to
        `FOLLOW_UP` words passes when an earlier message of the same user was about an allowed topic.
        """
        if not self._restricted:
            return
        messages: defaultdict[str, list[int]] = defaultdict(list)
        for index, segment in enumerate(segments):
            if segment.role in _USERS:
                messages[segment.place.partition(".")[0]].append(index)
        known: set[int] = set()
        for indexes in messages.values():
            texts = [piece.text for index in indexes for piece in split_into_chunks(segments[index].text)]
            about = {topic.rule for text in texts for topic, _, _ in self._allowed.find(text)}
            words = sum(count_words(text) for text in texts)
            for rule in self._restricted:
                if rule in about or words < GREETING or (words <= FOLLOW_UP and rule in known):
                    continue
                for index in indexes:
                    if segments[index].text.raw:
                        yield rule, index, Span(0, len(segments[index].text.raw), OFF_TOPIC, LABEL)
            known |= about


compile_rules = TopicMatcher


def count_words(text: ScannedText) -> int:
    """Return about how many words a text has, at least whether there are many; two letters of Chinese are one."""
    beginning = text.normalized[:400]
    return sum(1 if word.isascii() else max(1, _unspaced(word) // 2) for word in _WORD.findall(beginning))


def _unspaced(word: str) -> int:
    return sum("\u0e00" <= character <= "\u0eff" or "\u3040" <= character <= "\u9fff" for character in word)


def _topics_of(configs: Sequence[dict[str, Any]], field: str) -> Iterator[tuple[dict[str, Any], _Topic]]:
    for rule, config in enumerate(configs):
        for topic in config[field]:
            yield config, _Topic(rule, name_of(topic), _phrases_of(topic, config["synonyms"]))


def _phrases_of(topic: str, synonyms: dict[str, list[str]]) -> tuple[str, ...]:
    name, _, others = topic.partition(":")
    inline = [other.strip() for other in others.split(",") if other.strip()]
    return tuple(dict.fromkeys([name.strip(), *inline, *synonyms.get(name.strip(), ())]))


def _read_synonyms(value: object, names: set[str]) -> dict[str, list[str]]:
    if not isinstance(value, dict):
        raise BadConfig("synonyms", "Must be an object of lists by topic")
    read = {}
    for topic, words in value.items():
        if topic not in names:
            raise BadConfig(f"synonyms.{str(topic)[:MAX_WORD_LENGTH]}", "Not a topic of this rule")
        read[topic] = read_texts(words, f"synonyms.{topic}", most=MAX_SYNONYMS, longest=MAX_WORD_LENGTH)
        for index, word in enumerate(read[topic]):
            if not _WORD.search(ScannedText(word).normalized):
                raise BadConfig(f"synonyms.{topic}[{index}]", "Must consist of words")
    return read
