"""Public test material for detection of secrets and personal data, read from copies of its repositories.

The copies stand outside of this repository, one folder for each source as `owner+name`; none of their texts is kept
here. A source that is not there is left out.

`tuning` sources may be looked at to improve rules. `Held-out` ones gave only figures, until their missed texts were
read on 2026-11-25; missed texts of those in `detection_linters` are never read.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from bench.detection_forms import SETTINGS, made_from


class Sample(NamedTuple):
    """One labelled text: `wanted` is what should be found in it, empty where nothing should be."""

    text: str
    wanted: tuple[str, ...]
    family: str
    source: str


def is_stand_in(value: str) -> bool:
    """Tell whether a value is written to stand for a secret: letters or digits in their order, one piece over and over,
    or words that say so. Rules that let placeholders pass are right to let it pass."""
    order = 0
    for one, two in pairwise(value.lower()):
        step = ord(two) - ord(one)
        order = order + 1 if step in (1, -1) or one + two in ("90", "09") else 0
        if order >= _IN_ORDER:
            return True
    pieces = {value[place : place + 4].lower() for place in range(0, len(value) - 3, 4)}
    return len(pieces) * 3 <= len(value) // 4 or bool(_SAYS_SO.search(value))


class SampleSource(NamedTuple):
    """A repository's texts for one rule."""

    folder: str
    rule: str
    split: str
    read: Callable[[Path], Iterator[tuple[str, tuple[str, ...], str]]]


# Steps of an order that no random text has by chance: "abcdef".
_IN_ORDER = 4
_SAYS_SO = re.compile(
    r"(?i)example|sample|dummy|placeholder|fake|your[-_]|secret-?key|this-?is|my-?(?:secret|token|key|pass)|test_|xxxx|aaaaaa|"
    r"abcd|abc123|ab12|1234|4321|(?:11111|22222|33333|44444|55555|66666|77777|88888|99999)|"
    r"bbbb|0000000|qwerty|asdf|foobar|deadbeef|123e4567-e89b|(?:cccccc|dddddd|eeeeee|ffffff|gggggg|hhhhhh|iiiiii|kkkkkk)"
)
# Rules of scanners that are about something else than what opens.
NO_SECRET = re.compile(
    r"(?i)client.?id|account.?id|access key id|user.?name|\bhost|ur[il]\b|domain|public|hash|account name|endpoint|"
    r"tenant|bucket|resource name"
)
# Names of detectors that look for no credential: identifiers, addresses and names of accounts, markings of documents,
# faults of workflows. Findings by one of these are of this family, for every scanner.
_OF_NO_CREDENTIAL = re.compile(
    r"(?i)\b(?:ids?|(?:account |unique )identifier|uuid|e-?mail|user ?name|(?:org|cloud|host) name)(?:\.\d)?$|"
    r"unclassified|\bcui\b|vulnerable"
)
NO_CREDENTIAL = "no credential by its detector's name"
GO_TEXT = r'`[^`]*`|"(?:[^"\\\n]|\\.)*"'
# Where a value is a variable of a script or a template, there is none.
_VARIABLE = re.compile(r"[\"']?(?:\$|%\w+%|#\{|\{\{)")
# CredSweeper's rules that find public values.
_IDENTIFIER = re.compile(r"UUID|IPv[46]|Firebase Domain|AWS S3 Bucket|App ID$")
Row = tuple[str, tuple[str, ...], str]


def family_of(detector: str, family: str) -> str:
    """Return the family of a text that holds something: `NO_CREDENTIAL` where its detector's name says so."""
    return NO_CREDENTIAL if _OF_NO_CREDENTIAL.search(re.sub(r"[-_]", " ", detector)) else family


def unquoted(literal: str) -> str:
    """Return what a literal of Go says."""
    if literal.startswith("`"):
        return literal[1:-1]
    try:
        return str(json.loads(literal))
    except ValueError:
        return literal[1:-1]


def _gitleaks(folder: Path) -> Iterator[Row]:
    """Secrets made from the expressions of its rules, in the settings that its generator knows; and its false ones."""
    rules = tomllib.loads((folder / "config/gitleaks.toml").read_text())["rules"]
    for place, rule in enumerate(rules):
        pattern = rule.get("regex", "")
        if re.search(r"client-id|access-id|pub|_TEST|test-api|generic|kubernetes|curl|jwt|private-key", rule["id"]):
            continue
        named = re.search(r"\[\\w\.-\]\{0,50\}\?\(\?i?:.*?operator|=>\|\\\?=", pattern)
        body = re.search(r"\{0,5\}\((.*)\)\(\?:\[", pattern) if named else None
        secret = made_from(body.group(1) if body else pattern, place)
        if secret is None:
            continue
        vendor = rule["id"].split("-")[0]
        for number, form in enumerate(SETTINGS):
            if (place + number) % 6 == 0:
                text = form.replace("{i}", vendor).replace("{I}", vendor.upper()).replace("{s}", secret)
                yield text, (secret,), family_of(rule["id"], "vendor" if body is None else "assignment")
    for path in sorted((folder / "cmd/generate/config/rules").glob("*.go")):
        for block in re.findall(r"fps\s*:?=\s*\[\]string\{(.*?)\n\t\}", path.read_text(), re.S):
            for line in block.splitlines():
                if whole := re.fullmatch(rf"\s*({GO_TEXT}),?\s*(?://.*)?", line):
                    yield unquoted(whole.group(1)), (), "look-alike"


def _trufflehog(folder: Path) -> Iterator[Row]:
    case = re.compile(
        rf"input:\s*(fmt\.Sprintf\((?:[^()]|\([^()]*\))*\)|{GO_TEXT}),\n\s*want:\s*\[\]string\{{([^}}]+)\}}"
    )
    for path in sorted(folder.glob("pkg/detectors/**/*_test.go")):
        code = path.read_text(errors="replace")
        known = {name: unquoted(text) for name, text in re.findall(rf"\b(\w+)\s*=\s*({GO_TEXT})", code)}
        for said, wanted in case.findall(code):
            text = _go_text(said, known)
            values = [unquoted(one) if one[0] in '`"' else known.get(one, "") for one in _go_arguments(wanted)]
            if text and all(values) and values:
                yield text, tuple(values), "vendor in a log"


def _go_text(said: str, known: dict[str, str]) -> str | None:
    if not said.startswith("fmt"):
        return unquoted(said)
    arguments = _go_arguments(said[len("fmt.Sprintf(") : -1])
    values = [unquoted(one) if one[0] in '`"' else known.get(one) for one in arguments]
    if not values or any(value is None for value in values):
        return None
    text = str(values[0])
    for value in values[1:]:
        text = text.replace("%s", str(value), 1)
    return text


def _go_arguments(said: str) -> list[str]:
    return [one for one in re.findall(rf"{GO_TEXT}|\w+", said) if one]


def is_of_half(name: str, half: int | None) -> bool:
    """Tell whether what has this name belongs to one of two halves, by its digest; to None belongs everything."""
    return half is None or hashlib.sha256(name.encode()).digest()[0] % 2 == half


def _value_of(rule: dict[str, Any], text: str) -> str:
    """Return what a rule's own expression takes for the value in a text; empty where Python cannot read it."""
    pattern = re.sub(r"\(\?[a-z]+\)", "", rule.get("pattern", "")).replace(r"\z", r"\Z")
    try:
        found = re.search(pattern, text, re.VERBOSE | re.IGNORECASE)
    except re.error:
        return ""
    return (found.group(found.lastindex or 0) or "") if found else ""


def _rule_files(pattern: str, half: int | None = None) -> Callable[[Path], Iterator[Row]]:
    """Rules in YAML that bring `examples` and `negative_examples`; of a half of the files."""

    def read(folder: Path) -> Iterator[Row]:
        for path in sorted(folder.glob(pattern)):
            if not is_of_half(path.stem, half):
                continue
            for rule in yaml.safe_load(path.read_text()).get("rules", []):
                if NO_SECRET.search(rule["name"]):
                    continue
                for text in rule.get("examples") or ():
                    if not _VARIABLE.match(_value_of(rule, str(text))):
                        yield str(text), ("",), family_of(rule["name"], "vendor")
                for text in rule.get("negative_examples") or ():
                    yield str(text), (), "look-alike"

    return read


def _credsweeper(half: int) -> Callable[[Path], Iterator[Row]]:
    """Lines of its samples with the values that it finds in them; of a half of the samples."""

    def read(folder: Path) -> Iterator[Row]:
        for found in json.loads((folder / "tests/data/output.json").read_text()):
            line = found["line_data_list"][0]
            text, value = line["line"], line["value"]
            if not is_of_half(line["path"], half) or _IDENTIFIER.search(found["rule"]):
                continue
            if len(text) < 2000 and value and value in text:
                yield text, (value,), family_of(found["rule"], "secret of a sample")

    return read


def _secretlint(folder: Path) -> Iterator[Row]:
    for path in sorted(folder.glob("packages/@secretlint/secretlint-rule-*/test/snapshots/*/*")):
        case = path.parent.name
        if re.search(r"no-homedir|no-dotenv|filter|pattern|preset|internal|secp|k8s|rule-example", str(path)):
            continue
        if path.name.startswith("input") and case.startswith(("ng.", "ok.")) and path.stat().st_size < 20_000:
            if re.search(r"(?i)account id|tenant_id|client_id|allow|AccessKeyID|option|disable", case):
                continue
            text = path.read_text(errors="replace")
            if "\ufffd" in text:
                continue  # a file that is no text
            yield text, ("",) if case.startswith("ng.") else (), "vendor" if case.startswith("ng.") else "look-alike"


def _leaky(folder: Path) -> Iterator[Row]:
    """Whole files; its table says in how many places each has a secret."""
    for line in (folder / ".leaky-meta/secrets.csv").read_text().splitlines():
        name, _, rest = line.partition(",")
        risky, path = rest.partition(",")[0], folder / name
        if risky.strip().isdigit() and int(risky) > 0 and path.is_file():
            yield path.read_text(errors="replace"), ("",), "file with secrets"


SECRETS = (
    SampleSource("gitleaks+gitleaks", "secrets", "tuning", _gitleaks),
    SampleSource("trufflesecurity+trufflehog", "secrets", "tuning", _trufflehog),
    # One half of the files of these two serves to improve the rules.
    SampleSource("mongodb+kingfisher", "secrets", "tuning", _rule_files("data/rules/*.yml", 0)),
    SampleSource("Samsung+CredSweeper", "secrets", "tuning", _credsweeper(0)),
    SampleSource("mongodb+kingfisher", "secrets", "held-out", _rule_files("data/rules/*.yml", 1)),
    SampleSource(
        "praetorian-inc+noseyparker",
        "secrets",
        "held-out",
        _rule_files("crates/noseyparker/data/default/builtin/rules/*.yml"),
    ),
    SampleSource("Samsung+CredSweeper", "secrets", "held-out", _credsweeper(1)),
    SampleSource("secretlint+secretlint", "secrets", "held-out", _secretlint),
    SampleSource("Plazmaz+leaky-repo", "secrets", "held-out", _leaky),
)


def read_samples(root: Path, source: SampleSource) -> list[Sample]:
    """Return a source's texts, each once; empty where its copy is not there."""
    if not (root / source.folder).is_dir():
        return []
    rows = {text: (wanted, family) for text, wanted, family in source.read(root / source.folder) if text.strip()}
    samples = [Sample(text, wanted, family, source.folder) for text, (wanted, family) in rows.items()]
    if source.rule != "secrets":
        return samples
    # Neither to be found nor to be let pass.
    return [
        one
        for one in samples
        if not one.wanted or not all(is_stand_in(value or one.text[:400]) for value in one.wanted)
    ]
