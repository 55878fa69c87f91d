"""No sentence of a framework's reaches a client or a form as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.core import validators
from rest_framework import fields

from apps.kernel.rest.errors import reword

# Kinds of fields that no shape here has: files, paths of files, slugs, lengths of time.
_UNUSED = ("File", "FilePath", "Image", "Slug", "Duration", "Model")


def sentences() -> Iterator[tuple[str, str]]:
    """Every sentence that the framework says of a field, with values in its gaps."""
    for name, kind in vars(fields).items():
        if isinstance(kind, type) and issubclass(kind, fields.Field) and not name.startswith(_UNUSED):
            for code, sentence in vars(kind).get("default_error_messages", {}).items():
                filled = re.sub(r"\{(\w+)\}", lambda gap: "str" if gap[1] == "input_type" else "7", str(sentence))
                yield f"{name}.{code}", filled


@pytest.mark.parametrize(("name", "sentence"), [pytest.param(*one, id=one[0]) for one in sentences()])
def test_every_sentence_of_the_framework_has_one_of_ours(name: str, sentence: str) -> None:
    if name in {"BooleanField.invalid", "DateTimeField.make_aware"}:
        return
    ours = reword(sentence)
    assert ours != sentence
    assert re.fullmatch(r"(Must|Required)[^.]*", ours), ours
    assert ("7" in ours) == ("7" in sentence and "ISO 8601" not in ours and "allowed values" not in ours)


def test_what_validators_say_has_words_of_ours() -> None:
    assert reword(str(validators.ProhibitNullCharactersValidator.message)) == "Must not have null characters"
    assert reword("Ensure this value has at most 5 characters (it has 9).") == "Must be at most 5 characters long"
    assert reword("Ensure this field has no more than 3 elements.") == "Must hold at most 3 items"


@pytest.mark.parametrize(
    "ours", ["Must be 1 to 40 of a-z, 0-9 and -", "", "This field is required. Really.", "Required"]
)
def test_other_sentences_stay_as_they_are(ours: str) -> None:
    assert reword(ours) == ours
