"""Texts of pages and e-mails in other languages: reads them from the sources, writes `locale`, and checks translations.

    script/translations               # takes changed texts over into every language, and compiles them
    script/translations check de      # lists missing and wrong texts of one language
    script/translations add nl        # begins a language
    script/translations compile nl    # compiles a language

Sources are templates (`{% translate %}`, `{% blocktranslate %}`, `_("…")`), Python (`gettext` and its kin) and messages
of errors that a form shows. A text is the source's English; one that changes is a new text, without a translation.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import django
import polib
from django.utils.translation.template import templatize

ROOT: Final = Path(__file__).resolve().parents[2]
LOCALE: Final = ROOT / "locale"
_NAME: Final = Path("LC_MESSAGES") / "django.po"
_FUNCTIONS: Final = frozenset({"gettext", "gettext_lazy", "gettext_noop"})
_WITH_MORE: Final = frozenset({"ngettext", "pgettext", "pgettext_lazy", "npgettext"})
# Errors whose message a form shows in the reader's language, in folders with actions of forms. The message is the first
# argument, that of an issue the second.
_ERRORS: Final = {
    "InvalidRequest": 0,
    "Forbidden": 0,
    "NotFound": 0,
    "Unauthenticated": 0,
    "RateLimited": 0,
    "Unanswerable": 0,
    "Issue": 1,
}
_WITH_FORMS: Final = (
    "console",
    "organizations",
    "keys",
    "limits",
    "alerts",
    "billing",
    "log_sinks",
    "mcp_servers",
    "destinations",
)
# Errors of the API alone.
_FOR_PROGRAMS: Final = frozenset({"account_views", "audit_views", "idempotency", "management_key_views", "webhooks"})
# Templates in English: the admin's, and the reference of the API.
_ENGLISH: Final = ("templates/admin/", "templates/unfold/", "templates/docs/")
_LITERAL: Final = r"""[rubRUB]{0,2}(?:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")"""
_CALL: Final = re.compile(
    rf"\b(_|n?p?gettext)\(\s*({_LITERAL})(?:\s*,\s*({_LITERAL}))?(?:\s*,\s*({_LITERAL}))?", re.DOTALL
)
_PERCENT: Final = re.compile(r"%\((\w+)\)s|%%")
_BRACES: Final = re.compile(r"\{\w*\}")
_TAGS: Final = re.compile(r"</?\w+[^>]*>")

# Comments on texts that say too little.
NOTES: Final = {
    "open": "An adjective: an alert is open.",
    "on": "A switch is on.",
    "off": "A switch is off.",
    "event": "An alert that happened once, and is neither open nor resolved.",
    "Left": "The amount that is left of a limit.",
    "Counts": "What a limit counts: USD, requests or tokens.",
    "Key": "An API key.",
    "Ends": "When a key or a model stops working.",
    "Programs": "Software that a person signed in with their account (OAuth clients).",
    "Live": "A switch: the page follows new requests.",
    "Class": "The class of an error.",
    "Circuit": "A circuit breaker.",
    "Sound": "Audio; here what its price is for.",
    "{number}%": "A percentage, as the language writes it; the sign may follow a space.",
    "{price}: {old} → {new}": "A change. The arrow points to the new price: from right to left it is ←.",
    "{name}: {old} → {new}": "A change. The arrow points to the new value: from right to left it is ←.",
    "%(name)s: %(old)s → %(new)s": "A change. The arrow points to the new price: from right to left it is ←.",
    "Request": "A request to a model, as a noun.",
    "Input": "Input tokens; here what their price is for.",
    "Output": "Output tokens; here what their price is for.",
    "Safety": "The heading of guardrails and audit log in the navigation.",
    "Monitor": "The heading of logs, sessions and usage in the navigation.",
    "Access": "The heading of keys and projects in the navigation.",
    "free": "Without charge.",
    "Free": "The name of a plan, or without charge.",
    "You": "The reader; in a list of owners, and as a heading of the account page.",
    "{number} new requests": "A number above 1. “New requests: {number}” needs no plural.",
    "tool": "The role of a message: a tool's result.",
    "user": "The role of a message.",
    "assistant": "The role of a message: what the model said.",
    "system": "The role of a message: instructions to the model.",
    "Neutralize": "Cut the finding out of the text, and tell the model so.",
    "retain": "A value of the API, which stays as it is.",
}


class Text(NamedTuple):
    """A text to translate; `plural` is empty for one without. A context tells apart equal texts of several places."""

    singular: str
    plural: str
    context: str = ""


def read_sources() -> dict[Text, list[str]]:
    """Return the texts of the sources with the files that they are in."""
    found: dict[Text, list[str]] = {}
    for path in _sources():
        place = path.relative_to(ROOT).as_posix()
        for text in _in_template(path) if path.suffix == ".html" else _in_python(path):
            places = found.setdefault(text, [])
            if place not in places:
                places.append(place)
    return found


def _sources() -> Iterator[Path]:
    for folder, pattern in (("apps", "*.py"), ("apps", "*.html"), ("templates", "*.html")):
        for path in sorted((ROOT / folder).rglob(pattern)):
            place = path.relative_to(ROOT).as_posix()
            if not place.startswith(_ENGLISH) and "/migrations/" not in place:
                yield path


def _in_template(path: Path) -> Iterator[Text]:
    for name, *literals in _CALL.findall(templatize(path.read_text())):
        yield _text_of_call(name, [ast.literal_eval(one) if one else "" for one in literals])


def _in_python(path: Path) -> Iterator[Text]:
    source = path.read_text()
    shows_errors = path.relative_to(ROOT).parts[1] in _WITH_FORMS and path.stem not in _FOR_PROGRAMS
    if not shows_errors and "gettext" not in source:
        return
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        name, texts = node.func.id, [_constant(one) for one in node.args]
        if (name in _FUNCTIONS and texts[0]) or name in _WITH_MORE:
            yield _text_of_call(name, texts)
        elif shows_errors and name in _ERRORS and len(texts) > _ERRORS[name] and texts[_ERRORS[name]]:
            yield Text(texts[_ERRORS[name]], "")


def _text_of_call(name: str, texts: list[str]) -> Text:
    """Return the text of a call of gettext or one of its kin."""
    context, *rest = texts if "pgettext" in name else ["", *texts]
    return Text(rest[0], rest[1] if name.startswith("n") else "", context)


def _constant(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def path_of(language: str) -> Path:
    """Return the file of a language: `zh-hans` is in the folder `zh_Hans`."""
    main, _, variant = language.partition("-")
    folder = f"{main}_{variant.title() if len(variant) > 2 else variant.upper()}" if variant else main
    return LOCALE / folder / _NAME


def files() -> dict[str, Path]:
    """Return the files by language."""
    return {path.parts[-3].lower().replace("_", "-"): path for path in sorted(LOCALE.glob(f"*/{_NAME}"))}


def update(language: str, found: dict[Text, list[str]]) -> None:
    """Take the texts of the sources over into a language, and compile it; a translation of another text is dropped."""
    path = path_of(language)
    old = {_text_of(one): one for one in polib.pofile(str(path))} if path.exists() else {}
    file = polib.POFile(wrapwidth=100)
    file.metadata = {
        "Project-Id-Version": "model-gateway",
        "Language": path.parts[-3],
        "MIME-Version": "1.0",
        "Content-Type": "text/plain; charset=UTF-8",
        "Content-Transfer-Encoding": "8bit",
        "Plural-Forms": _plural_forms(path.parts[-3]),
    }
    count = int(re.search(r"nplurals=(\d)", file.metadata["Plural-Forms"])[1])  # type: ignore[index]  # it has one
    for text, places in found.items():
        known = old.get(text)
        plurals = {number: known.msgstr_plural.get(number, "") if known else "" for number in range(count)}
        file.append(
            polib.POEntry(
                msgctxt=text.context or None,
                msgid=text.singular,
                msgid_plural=text.plural,
                msgstr="" if text.plural or known is None else known.msgstr,
                msgstr_plural=plurals if text.plural else {},
                occurrences=[(place, "") for place in places],
                comment=NOTES.get(text.singular, ""),
                flags=_flags(text),
            )
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    file.save(str(path))
    path.with_suffix(".mo").write_bytes(compiled(path))


def compiled(path: Path) -> bytes:
    """Return what a file compiles to."""
    return polib.pofile(str(path)).to_binary()


def problems_of(language: str, found: dict[Text, list[str]]) -> list[str]:
    """Return the missing and the wrong texts of a language."""
    path = path_of(language)
    entries = {_text_of(one): one for one in polib.pofile(str(path))}
    problems = [f"not in the file: {text.singular!r}" for text in found if text not in entries]
    problems += [f"not in the sources: {text.singular!r}" for text in entries if text not in found]
    for text, entry in entries.items():
        if entry.fuzzy:
            problems.append(f"fuzzy: {text.singular!r}")
        if not text.plural:
            problems += _problems(text.singular, entry.msgstr, text.singular)
            continue
        forms = [entry.msgstr_plural[number] for number in sorted(entry.msgstr_plural)]
        for number, form in enumerate(forms):
            # A form for one or two may do without the number.
            problems += _problems(text.plural, form, text.plural, is_last=number == len(forms) - 1)
    return problems


def _problems(source: str, translation: str, shown: str, *, is_last: bool = True) -> list[str]:
    if not translation.strip():
        return [f"not translated: {shown!r}"]
    wanted, stated = placeholders(source), placeholders(translation)
    if (stated != wanted) if is_last else not set(stated) <= set(wanted):
        return [f"placeholders {stated} instead of {wanted}: {shown!r}"]
    if sorted(_TAGS.findall(source)) != sorted(_TAGS.findall(translation)):
        return [f"tags {_TAGS.findall(translation)} instead of {_TAGS.findall(source)}: {shown!r}"]
    if source.endswith("\n") != translation.endswith("\n"):
        return [f"a line break at the end is missing, or too many: {shown!r}"]
    return []


def placeholders(text: str) -> list[str]:
    """Return the placeholders of a text, sorted."""
    return sorted({one.group() for one in (*_PERCENT.finditer(text), *_BRACES.finditer(text))})


def _flags(text: Text) -> list[str]:
    if _PERCENT.search(text.singular + text.plural):
        return ["python-format"]
    return ["python-brace-format"] if _BRACES.search(text.singular + text.plural) else []


def _text_of(entry: polib.POEntry) -> Text:
    return Text(entry.msgid, entry.msgid_plural, entry.msgctxt or "")


def _plural_forms(folder: str) -> str:
    """Return the rule of plurals, which Django's own translation has."""
    theirs = Path(django.__file__).parent / "conf" / "locale" / folder / _NAME
    return str(polib.pofile(str(theirs)).metadata["Plural-Forms"])


def main(arguments: list[str]) -> int:
    """Run the command; return its exit status."""
    found = read_sources()
    match arguments:
        case ["check", *languages]:
            chosen = languages or list(files())
            told = [f"{language}: {problem}" for language in chosen for problem in problems_of(language, found)]
            told.append(f"{len(found)} texts, {len(told)} problems in {', '.join(chosen)}")
            sys.stdout.write("\n".join(told) + "\n")
            return int(len(told) > 1)
        case ["add", *languages]:
            for language in languages:
                update(language, found)
        case ["compile", *languages]:
            for language in languages or files():
                path_of(language).with_suffix(".mo").write_bytes(compiled(path_of(language)))
        case []:
            for language in files():
                update(language, found)
        case _:
            sys.stdout.write(f"{__doc__}\n")
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
