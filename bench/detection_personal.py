"""Public test material for personal data, read from copies of its repositories, as `detection_sources` is."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.detection_sources import Row, SampleSource

# Presidio looks for these as well: names and places, firms, cars, dates, machines.
_NOT_PERSONAL = re.compile(
    r"transformers|spacy|stanza|date|url|postcode|vehicle|plate|organisation|brn|abn|acn|gstin|vat|plz|handels|kfz|us_bank|"
    r"mac|^ip$|licen[cs]e|fuehrer|bsnr|lanr|uen|zip"
)
_BY_FORM = re.compile(r"email|iban|credit_card|crypto|mbi|es_nie|mobile")


def _python_tests(pattern: str) -> Callable[[Path], Iterator[Row]]:
    """Tests of presidio: tuples of a text, how many are in it, and their places."""

    def read(folder: Path) -> Iterator[Row]:
        for path in sorted(folder.glob(pattern)):
            kind = path.stem.removeprefix("test_").removesuffix("_recognizer")
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.Tuple) or len(node.elts) < 3:
                    continue
                try:
                    text, count, places = (ast.literal_eval(one) for one in node.elts[:3])
                except ValueError:
                    continue
                if not isinstance(text, str) or not isinstance(count, int) or not isinstance(places, tuple):
                    continue
                flat = places if not places or isinstance(places[0], tuple) else (places,)
                values = tuple(text[place[0] : place[1]] for place in flat if len(place) == 2)
                alone = len(values[0]) == len(text.strip()) if values else False
                if count and values:
                    if not _NOT_PERSONAL.search(kind) and (not alone or _BY_FORM.search(kind)):
                        yield text, values, f"{kind} alone" if alone else kind
                elif not count and " " in text and not _NOT_PERSONAL.search(kind):
                    yield text, (), "look-alike"

    return read


_SYNTHETIC = {"CREDIT_CARD", "PHONE_NUMBER", "EMAIL_ADDRESS", "IBAN_CODE", "US_SSN", "IP_ADDRESS"}


def _presidio_research(folder: Path) -> Iterator[Row]:
    for row in json.loads((folder / "data/synth_dataset_v2.json").read_text()):
        values: dict[str, list[str]] = {}
        for span in row["spans"]:
            if span["entity_type"] in _SYNTHETIC:
                values.setdefault(span["entity_type"].lower(), []).append(span["entity_value"])
        if values:
            for kind, found in values.items():
                yield row["full_text"], tuple(found), kind
        elif not {"DATE_TIME", "US_DRIVER_LICENSE"} & {span["entity_type"] for span in row["spans"]}:
            yield row["full_text"], (), "sentence without"


def _recognizers(folder: Path) -> Iterator[Row]:
    for path in sorted(folder.glob("Specs/Sequence/*/*.json")):
        kind = path.stem.removesuffix("Model").lower()
        if kind not in ("phonenumber", "email"):
            continue
        for row in json.loads(path.read_text(encoding="utf-8-sig")):
            values = tuple(one["Text"] for one in row.get("Results") or ())
            if "python" not in str(row.get("NotSupported", "")).lower() and (values or kind == "phonenumber"):
                yield row["Input"], values, kind if values else "look-alike"


_OF_NO_PERSON = re.compile(
    r"(?i)\bVAT\b|compan|business|enterprise|post|corporate|organi[sz]ation|legal|register|meter|"
    r"securit(?:y|ies) (?:id|code)|"
    r"land|excise|school|pupil|entit(?:y|ies)|consumption|supply|economic|educat|energy|import|establish|"
    r"Wertpapier|bank|payment"
)


def _stdnum(folder: Path) -> Iterator[Row]:
    """The examples in its modules: `validate('…')` that returns, behind the number's own name."""
    for path in sorted(folder.glob("stdnum/*/*.py")):
        said = path.read_text()
        if path.stem == "__init__" or _OF_NO_PERSON.search(said[said.find('"""') :][:400]):
            continue
        title = re.search(r'^"""(\w[\w.º-]*) \(([^,)]+)', said, re.M)
        for number in re.findall(r">>> validate\('([^']+)'\)\n'", said)[:3]:
            if title:
                yield f"{title.group(1)}: {number}", (number,), f"{path.parent.name}.{path.stem}"


PERSONAL = (
    SampleSource(
        "microsoft+presidio", "pii_detection", "tuning", _python_tests("presidio-analyzer/tests/test_*_recognizer.py")
    ),
    SampleSource("arthurdejong+python-stdnum", "pii_detection", "tuning", _stdnum),
    SampleSource("microsoft+presidio-research", "pii_detection", "held-out", _presidio_research),
    SampleSource("microsoft+Recognizers-Text", "pii_detection", "held-out", _recognizers),
)
