"""Topics: blocked ones found by their words' stems, allowed ones beside which nothing else is spoken about."""

from __future__ import annotations

from typing import Any

import pytest

from apps.guardrails.custom import BadConfig
from apps.guardrails.custom.topic_restriction import compile_rules, read_config
from apps.guardrails.findings.scan_types import Segment
from apps.guardrails.matching import stemming
from apps.guardrails.matching.stemming import LANGUAGES, stem
from apps.guardrails.regex.re2_matcher import TimeBudget
from apps.guardrails.text.scanned_text import ScannedText
from tests.guardrails.rules_in_force import compiled, custom, screened


def mentions(text: str, *topics: str, **said: Any) -> list[tuple[str, str]]:
    """Return what a rule finds, as it was written, each with its topic."""
    matcher = compile_rules([read_config({"blockedTopics": list(topics), **said})])
    spans = {(span.start, span.end, span.pattern) for _, span in matcher.find(ScannedText(text), TimeBudget())}
    return [(text[start:end], topic) for start, end, topic in sorted(spans)]


@pytest.mark.parametrize(
    ("text", "topic", "written"),
    [
        ("They gambled at two Casinos.", "gambling: casino, bet", ["gambled", "Casinos"]),
        ("He was betting on horses", "gambling: casino, bet", ["betting"]),
        ("a better alphabet", "gambling: bet", []),
        ("tax returns and Tax\nReturn!", "tax return", ["tax returns", "Tax\nReturn"]),
        ("the return of the tax", "tax return", []),
        ("the tax, return it", "tax return", ["tax, return"]),
        ("cas\u200binos", "casino", ["cas\u200binos"]),
        ("Нам нужна ставка", "ставка", ["ставка"]),
        ("他在赌博网站上", "gambling: 赌博", ["赌博"]),
    ],
)
def test_a_topic_is_found_by_its_words_in_any_form(text: str, topic: str, written: list[str]) -> None:
    found = mentions(text, topic)
    assert [words for words, _ in found] == written
    assert {name for _, name in found} <= {topic.partition(":")[0]}


@pytest.mark.parametrize(
    ("language", "topic", "text", "written"),
    [
        ("german", "Versicherung", "unsere Versicherungen", "Versicherungen"),
        ("german", "Haus", "zwei Häuser", "Häuser"),
        ("spanish", "apuesta", "las apuestas", "apuestas"),
        ("russian", "ставка", "делать ставки", "ставки"),
        ("french", "cheval de course", "les chevaux de courses", "chevaux de courses"),
    ],
)
def test_languages_have_their_own_stems(language: str, topic: str, text: str, written: str) -> None:
    assert mentions(text, topic, language=language) == [(written, topic)]


def test_synonyms_can_be_said_the_long_way() -> None:
    said = {"synonyms": {"gambling": ["slot machine"]}}
    assert mentions("Slot machines!", "gambling", **said) == [("Slot machines", "gambling")]


def test_a_word_of_many_forms_and_a_text_of_many_words_stay_bounded() -> None:
    """Words beyond those that are stemmed in one text are compared by their beginning."""
    text = " ".join(f"casin{number:05}x" for number in range(9000)) + " casinos"
    assert ("casinos", "casino") in mentions(text, "casino")


def off_topic(*texts: str | tuple[str, str]) -> list[int]:
    """Return which of the messages are found beside the topic; a text alone is a user's."""
    rules = compiled(custom("only", {"allowedTopics": ["insurance: policy, premium, claim"]}))
    messages = [("user", text) if isinstance(text, str) else text for text in texts]
    segments = [Segment(ScannedText(text), role, f"messages[{at}].content") for at, (role, text) in enumerate(messages)]
    [(find_matcher, _)] = rules.custom
    matcher = find_matcher()
    return [index for _, index, _ in matcher.find_in_conversation(segments)]  # type: ignore[attr-defined]  # topics have it


def test_what_is_about_an_allowed_topic_passes() -> None:
    assert off_topic("How do I file a claim after a storm has damaged the roof of my neighbour's house?") == []
    assert off_topic("Compare the premiums") == []


def test_everything_else_is_found() -> None:
    assert off_topic("Write a poem about autumn leaves") == [0]
    assert off_topic("Is my roof insured by the policy?", "And now write me a long poem about autumn leaves") == [1]
    assert off_topic("写一首关于秋天的长诗好不好呢") == [0]


def test_short_words_in_a_conversation_about_the_topic_pass() -> None:
    assert off_topic("Which claims are refused?", "Thanks, and the second one?") == []
    # Later messages are not known when something is said.
    assert off_topic("And the second one, please?", "Which claims are refused?") == [0]


def test_a_greeting_is_about_nothing_yet() -> None:
    assert off_topic("Hello!") == []
    assert off_topic("") == []


def test_only_users_have_to_keep_to_the_topic() -> None:
    assert off_topic(("system", "You are a friendly assistant of a company."), ("assistant", "How can I help?")) == []


def test_texts_of_one_message_count_together() -> None:
    rules = compiled(custom("only", {"allowedTopics": ["insurance"]}))
    places = ["messages[0].content[0].text", "messages[0].content[1].text"]
    texts = ["Summarize this insurance contract", "Paragraph one: the parties agree on the following terms."]
    segments = [Segment(ScannedText(text), "user", place) for text, place in zip(texts, places, strict=True)]
    [(find_matcher, _)] = rules.custom
    matcher = find_matcher()
    assert list(matcher.find_in_conversation(segments)) == []  # type: ignore[attr-defined]  # topics have it


def test_what_is_off_topic_can_be_refused_masked_and_not_allowed() -> None:
    text = "Write a poem about autumn leaves"
    topics = {"allowedTopics": ["insurance"]}
    blocked = screened(compiled(custom("only", topics)), text).blocked
    assert blocked is not None
    assert [(span.start, span.end, span.pattern) for span in blocked.spans] == [(0, len(text), "off_topic")]
    assert screened(compiled(custom("only", topics, action="redact")), text).redactions == {0: "[TOPIC_REDACTED]"}
    assert screened(compiled(custom("only", topics, action="allow")), text).findings == ()


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ([], ""),
        ({}, "blockedTopics"),
        ({"blockedTopics": "weapons"}, "blockedTopics"),
        ({"blockedTopics": ["weapons", ""]}, "blockedTopics[1]"),
        ({"blockedTopics": ["weapons", ": gun"]}, "blockedTopics[1]"),
        ({"allowedTopics": ["!!!"]}, "allowedTopics[0]"),
        ({"allowedTopics": ["a: b, ?"]}, "allowedTopics[0]"),
        ({"blockedTopics": ["weapons"], "language": "klingon"}, "language"),
        ({"blockedTopics": ["weapons"], "language": ["english"]}, "language"),
        ({"blockedTopics": ["weapons"], "synonyms": []}, "synonyms"),
        ({"blockedTopics": ["weapons"], "synonyms": {"tools": ["hammer"]}}, "synonyms.tools"),
        ({"blockedTopics": ["weapons"], "synonyms": {"weapons": "gun"}}, "synonyms.weapons"),
        ({"blockedTopics": ["weapons"], "synonyms": {"weapons": ["gun", "-"]}}, "synonyms.weapons[1]"),
    ],
)
def test_what_are_no_topics_is_refused_by_its_field(config: object, path: str) -> None:
    with pytest.raises(BadConfig) as raised:
        read_config(config)
    assert raised.value.path == path


def test_a_configuration_is_kept_with_its_defaults() -> None:
    kept = {
        "blockedTopics": ["gambling: casino"],
        "allowedTopics": [],
        "synonyms": {"gambling": ["bet"]},
        "language": "english",
    }
    assert read_config({"blockedTopics": [" gambling: casino "], "synonyms": {"gambling": ["bet"]}}) == kept
    assert read_config(kept) == kept
    assert {"english", "german", "arabic"} <= set(LANGUAGES)


def test_words_too_long_for_a_language_are_not_kept() -> None:
    words = ("casinos", "x" * 41, "x" * 1_000_000)
    assert [stem("english", word) for word in words] == ["casino", *words[1:]]
    assert stemming._known[("english", "casinos")] == "casino"
    assert max(len(word) for _, word in stemming._known) <= 40
