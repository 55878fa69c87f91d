"""Test material of further detectors, read as `detection_sources` reads the others.

Missed secrets were read on 2026-11-25, once; no missed personal data was read to improve a rule.
Generated material needs its libraries (Faker, phonenumbers); where they are not installed, it is left out.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import textwrap
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

from bench.detection_sources import GO_TEXT, NO_SECRET, Row, SampleSource, family_of, is_of_half, unquoted

_EACH = 12
_SPLIT = "held-out, unseen"
_READ = "held-out"


def _known(tree: ast.AST) -> dict[str, str]:
    """Return the texts that a program in Python gives names to."""
    return {
        target.id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _python_text(node: ast.expr, known: dict[str, str]) -> str | None:
    """Return what an expression of texts, names and `format` comes to."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name):
            return known.get(name)
        case ast.Call(func=ast.Attribute(value=said, attr="format"), args=args, keywords=keywords):
            form = _python_text(said, known)
            values = [_python_text(one, known) for one in args]
            named = {one.arg or "": _python_text(one.value, known) for one in keywords}
            if form is None or None in values or None in named.values():
                return None
            return form.format(*values, **named)
    return None


def detect_secrets_rows(folder: Path, names: tuple[str, ...]) -> Iterator[Row]:
    """Lines in tests of detectors, and whether one is to be flagged."""
    for name in names:
        tree = ast.parse((folder / "tests/plugins" / name).read_text())
        known = _known(tree)
        for node in ast.walk(tree):
            if not isinstance(node, ast.Tuple) or len(node.elts) != 2:
                continue
            said, flagged = node.elts
            if not isinstance(flagged, ast.Constant) or not isinstance(flagged.value, bool):
                continue
            if text := _python_text(said, known):
                yield text, ("",) if flagged.value else (), "vendor" if flagged.value else "look-alike"


def _detect_secrets(folder: Path) -> Iterator[Row]:
    """Cases of all detectors but that of names, which were seen."""
    names = (path.name for path in sorted(folder.glob("tests/plugins/*_test.py")))
    left_out = re.compile(r"high_entropy|ip_public|base_|keyword")
    yield from detect_secrets_rows(folder, tuple(name for name in names if not left_out.match(name)))


def _scalibr(half: int) -> Callable[[Path], Iterator[Row]]:
    """Cases of its detectors: an input made of literals and constants; of a half of the detectors."""
    part = rf"(?:{GO_TEXT}|\w+)"
    case = re.compile(rf"input:\s*({part}(?:\s*\+\s*{part})*),\n\s*(?:want|secret|wantSecrets?):\s*([^\n]*)")

    def read(folder: Path) -> Iterator[Row]:
        for path in sorted(folder.glob("veles/secrets/*/**/*detector_test.go")):
            if not is_of_half(path.parent.name + path.stem, half):
                continue
            code = path.read_text(errors="replace")
            known = {name: unquoted(text) for name, text in re.findall(rf"\b(\w+)\s*:?=\s*({GO_TEXT})\n", code)}
            for said, wanted in case.findall(code):
                parts = [unquoted(one) if one[0] in '`"' else known.get(one) for one in re.findall(part, said)]
                if None in parts:
                    continue
                nothing = wanted.startswith("nil") or wanted.rstrip(",").endswith("{}")
                yield "".join(map(str, parts)), () if nothing else ("",), "look-alike" if nothing else "vendor"

    return read


def _two_ms(folder: Path) -> Iterator[Row]:
    """Every twelfth of its texts: it writes down each rule's value in the thirty settings that gitleaks knows."""
    lists = re.compile(r"(truePositives|falsePositives):\s*\[\]string\{(.*?)\n\t+\},?\n", re.S)
    for kind, step in (("truePositives", _EACH), ("falsePositives", 1)):
        texts = [
            (unquoted(text), family_of(path.stem.removesuffix("_test"), "vendor"))
            for path in sorted(folder.glob("engine/rules/ruledefine/*_test.go"))
            if not NO_SECRET.search(path.stem)
            for found, said in lists.findall(path.read_text())
            if found == kind
            for text in re.findall(rf"^\s*({GO_TEXT}),?$", said, re.M)
        ]
        wanted = ("",) if kind == "truePositives" else ()
        yield from ((text, wanted, family if wanted else "look-alike") for text, family in texts[::step])


def _scrubadub(*kinds: str) -> Callable[[Path], Iterator[Row]]:
    """Texts before and after of its tests: what became a name in braces is wanted."""

    def read(folder: Path) -> Iterator[Row]:
        for kind in kinds:
            tree = ast.parse((folder / f"tests/test_detector_{kind}.py").read_text())
            for node in ast.walk(tree):
                said = ast.get_docstring(node) if isinstance(node, ast.FunctionDef) else None
                if not said or "BEFORE:" not in said or "AFTER:" not in said:
                    continue
                before, after = (textwrap.dedent(one).strip() for one in said.split("BEFORE:")[1].split("AFTER:")[:2])
                pieces = re.split(r"\{\{[^{}]*\}\}", after)
                found = re.fullmatch("(.+?)".join(map(re.escape, pieces)), before, re.S)
                if found and len(pieces) > 1:
                    yield before, found.groups(), kind
                elif before == after:
                    yield before, (), "look-alike"

    return read


_BY_FORM = {"EMAIL", "PHONE", "CREDIT_CARD", "IP_ADDRESS", "SSN", "DE_IBAN"}
_NOT_BY_FORM = {"DATE", "DE_VAT_ID", "ZIP_CODE"}


def _datafog(folder: Path) -> Iterator[Row]:
    for path in sorted(folder.glob("tests/corpus/*.json")):
        for row in json.loads(path.read_text()):
            values: dict[str, list[str]] = {}
            for one in row["expected_entities"]:
                values.setdefault(one["type"], []).append(one["text"])
            for kind, found in values.items():
                if kind in _BY_FORM and len(row["input"]) < 20_000:
                    yield row["input"], tuple(found), kind.lower()
            if not values.keys() & (_BY_FORM | _NOT_BY_FORM):
                yield row["input"], (), "look-alike"


_SAID = (
    "Phone: {}",
    "You can reach me at {} after five.",
    "My number is {}, thanks.",
    "tel. {}",
    '{{"phone": "{}"}}',
    "{} (mobile)",
)


def _numbers(folder: Path) -> Iterator[Row]:
    """Each region's example numbers of phonenumbers, as its people and as foreigners write it."""
    try:
        phones = importlib.import_module("phonenumbers")
    except ImportError:
        return
    said = cycle(_SAID)
    kinds = phones.PhoneNumberType
    for region in sorted(phones.SUPPORTED_REGIONS):
        for kind in (kinds.FIXED_LINE, kinds.MOBILE):
            number = phones.example_number_for_type(region, kind)
            if number is None:
                continue
            for form in ("NATIONAL", "INTERNATIONAL"):
                written = phones.format_number(number, getattr(phones.PhoneNumberFormat, form))
                yield next(said).format(written), (written,), f"telephone, {form.lower()}"


_LOCALES = "en_US en_GB de_DE fr_FR es_ES it_IT nl_NL pl_PL pt_BR sv_SE da_DK fi_FI no_NO ja_JP ko_KR zh_CN"
_MADE = (
    ("email", "Write to {} please."),
    ("phone_number", "Phone: {}"),
    ("phone_number", "My phone number is {}."),
    ("iban", "Please pay to {} by Friday."),
    ("credit_card_number", "The card is {}, thanks."),
    ("ipv4_public", "The request came from {} yesterday."),
    ("ipv6", "The request came from {} yesterday."),
)


def _faker(folder: Path) -> Iterator[Row]:
    """Texts that Faker makes up in sixteen languages, eight times each, the same each time."""
    try:
        faker = importlib.import_module("faker").Faker
    except ImportError:
        return
    for place, locale in enumerate(_LOCALES.split()):
        maker = faker(locale)
        maker.seed_instance(place)
        for kind, said in _MADE:
            for _ in range(8):
                value = str(getattr(maker, kind)())
                yield said.format(value), (value,), kind
        if locale == "en_US":
            for _ in range(40):
                value = maker.ssn()
                yield f"SSN {value} on file", (value,), "ssn"


UNSEEN = (
    SampleSource("Yelp+detect-secrets", "secrets", _READ, _detect_secrets),
    # One half of its detectors serves to improve the rules.
    SampleSource("google+osv-scalibr", "secrets", "tuning", _scalibr(0)),
    SampleSource("google+osv-scalibr", "secrets", _READ, _scalibr(1)),
    SampleSource("Checkmarx+2ms", "secrets", _READ, _two_ms),
    SampleSource("LeapBeyond+scrubadub", "secrets", _READ, _scrubadub("credentials")),
    SampleSource(
        "LeapBeyond+scrubadub",
        "pii_detection",
        _SPLIT,
        _scrubadub("credit_card", "date_of_birth", "emails", "en_GB_nino", "en_GB_trn", "en_US_social_security_number"),
    ),
    SampleSource("DataFog+datafog-python", "pii_detection", _SPLIT, _datafog),
    SampleSource("daviddrysdale+python-phonenumbers", "pii_detection", _SPLIT, _numbers),
    SampleSource("joke2k+faker", "pii_detection", _SPLIT, _faker),
)
