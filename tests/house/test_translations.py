"""Texts of pages are marked for translation, and every language has all of them."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from django.conf import settings

from gateway_project.configuration.data_directory import PROJECT
from tests.house import translations

LANGUAGES = [code for code, _ in settings.LANGUAGES if code != "en"]
# Names, and code that is the same in every language.
NOT_TRANSLATED = frozenset({"Model gateway", "curl", "Python", "JavaScript", "custom:"})
READ_ATTRIBUTES = frozenset({"aria-label", "title", "alt", "placeholder", "data-label", "data-title"})
CODE = frozenset({"code", "pre", "script", "style", "svg"})
# Blocks with names of classes, and with elements of the head.
NO_TEXT = re.compile(r"\{% block (?:\w+_class|head|scripts|foreign_styles) %\}.*?\{% endblock %\}", re.DOTALL)
MARKED = re.compile(
    r"\{% comment %\}.*?\{% endcomment %\}|\{% blocktranslate.*?\{% endblocktranslate %\}|\{#.*?#\}|\{\{.*?\}\}",
    re.DOTALL,
)
TAG = re.compile(r"\{%.*?%\}", re.DOTALL)
# Words in place of a missing value.
DEFAULT = re.compile(r'\{\{[^}]*\|default(?:_if_none)?:"[A-Za-z][^}]*\}\}')
# Options of tags that a person reads.
OPTIONS = re.compile(r'\{% field \S+ \S+ "|\b(?:help|question|warning|label|nothing|chart_title)="[^"]')


class Unmarked(HTMLParser):
    """Texts and attributes with letters that are left of a template without its marked texts."""

    def __init__(self, template: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self._in_code = 0
        self.feed(TAG.sub("", MARKED.sub("", NO_TEXT.sub("", template))))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_code += tag in CODE
        self.found += [value for name, value in attrs if name in READ_ATTRIBUTES and value and has_words(value)]

    def handle_endtag(self, tag: str) -> None:
        self._in_code -= tag in CODE

    def handle_data(self, data: str) -> None:
        if not self._in_code and has_words(data):
            self.found.append(data.strip())


def has_words(text: str) -> bool:
    return bool(re.search(r"[A-Za-z]{2}", text)) and text.strip(" ·|\n") not in NOT_TRANSLATED


def templates() -> list[Path]:
    own = [*(PROJECT / "apps").rglob("*.html"), PROJECT / "templates/error.html", PROJECT / "templates/mail_page.html"]
    return sorted(own)


def unmarked_in(template: str) -> list[str]:
    """Return texts of a template that are not marked."""
    without = MARKED.sub("", template)
    options = [one for one in TAG.findall(without) if OPTIONS.search(one)]
    return Unmarked(template).found + options + DEFAULT.findall(template)


def test_every_text_of_a_template_is_marked() -> None:
    found = {str(path.relative_to(PROJECT)): unmarked_in(path.read_text()) for path in templates()}
    assert len(found) > 100
    assert {path: texts for path, texts in found.items() if texts} == {}


def test_unmarked_texts_are_found() -> None:
    assert (
        unmarked_in('<p title="{% translate "A title" %}">{% translate "Text" %} <code>max_tokens</code> {{ one }}</p>')
        == []
    )
    assert unmarked_in('<p title="A title">Text</p>') == ["A title", "Text"]
    assert unmarked_in('{% field form "name" "Name" help=_("Help") %}') == [
        '{% field form "name" "Name" help=_("Help") %}'
    ]
    assert unmarked_in('{% field form "name" _("Name") help="Help" %}') == [
        '{% field form "name" _("Name") help="Help" %}'
    ]
    assert unmarked_in('{% field form "name" _("Name") help=_("Help") placeholder="gpt-5" %}') == []
    assert unmarked_in('<p>{{ key.url|default:"none" }}</p>') == ['{{ key.url|default:"none" }}']
    assert unmarked_in('<p>{{ key.url|default:_("none") }} {{ key.name|default:"–" }}</p>') == []


def test_equal_texts_are_told_apart_by_their_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "apps").mkdir()
    (tmp_path / "apps/page.html").write_text(
        '{% load i18n %}{% translate "To" %}{% translate "To" context "buyer" %}'
        '{% blocktranslate context "seller" count n=n %}{{ n }} key{% plural %}{{ n }} keys{% endblocktranslate %}'
    )
    (tmp_path / "apps/circuit.py").write_text('gettext("open")\npgettext("circuit", "open")\n')
    monkeypatch.setattr(translations, "ROOT", tmp_path)
    monkeypatch.setattr(translations, "LOCALE", tmp_path / "locale")
    found = translations.read_sources()
    assert [tuple(one) for one in found] == [
        ("open", "", ""),
        ("open", "", "circuit"),
        ("To", "", ""),
        ("To", "", "buyer"),
        ("%(n)s key", "%(n)s keys", "seller"),
    ]
    translations.update("de", found)
    file = translations.polib.pofile(str(translations.path_of("de")))
    for entry in file:
        entry.msgstr = "" if entry.msgid_plural else f"{entry.msgctxt or ''}:{entry.msgid}"
        entry.msgstr_plural = {0: "%(n)s a", 1: "%(n)s b"} if entry.msgid_plural else {}
    file.save()
    translations.update("de", found)
    assert translations.problems_of("de", found) == []
    # The same text elsewhere keeps its own translation.
    entries = translations.polib.pofile(str(translations.path_of("de")))
    assert entries.find("To", msgctxt="buyer").msgstr == "buyer:To"  # type: ignore[union-attr]  # it is there


def test_every_language_has_its_files() -> None:
    assert set(LANGUAGES) <= set(translations.files())


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_language_is_complete_and_keeps_placeholders(language: str) -> None:
    assert translations.problems_of(language, translations.read_sources()) == []


@pytest.mark.parametrize("language", sorted(translations.files()))
def test_the_compiled_texts_are_those_of_the_source(language: str) -> None:
    path = translations.path_of(language)
    assert path.with_suffix(".mo").read_bytes() == translations.compiled(path)


def test_wrong_translations_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translations, "LOCALE", tmp_path)
    text, several = translations.Text("Hello %(name)s, <b>{number}</b>", ""), translations.Text("{n} key", "{n} keys")
    found = {text: ["a.html"], several: ["b.py"]}
    translations.update("de", found)
    missing = [f"not translated: {text.singular!r}", *[f"not translated: {several.plural!r}"] * 2]
    assert translations.problems_of("de", found) == missing
    file = translations.polib.pofile(str(translations.path_of("de")))
    file[0].msgstr = "Hallo %(Name)s, <b>{number}</b>"
    file[1].msgstr_plural = {0: "ein Schlüssel", 1: "Schlüssel"}
    file.save()
    assert translations.problems_of("de", found) == [
        f"placeholders ['%(Name)s', '{{number}}'] instead of ['%(name)s', '{{number}}']: {text.singular!r}",
        f"placeholders [] instead of ['{{n}}']: {several.plural!r}",
    ]
    file[0].msgstr, file[1].msgstr_plural = "Hallo %(name)s, {number}", {0: "ein Schlüssel", 1: "{n} Schlüssel"}
    file.save()
    assert translations.problems_of("de", found) == [f"tags [] instead of ['<b>', '</b>']: {text.singular!r}"]
    # Texts that stay keep their translation; others are removed.
    translations.update("de", {several: ["b.py"]})
    assert translations.problems_of("de", {several: ["b.py"]}) == []
