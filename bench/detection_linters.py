"""Test material of linters and of further scanners, whose missed texts were never looked at.

Read as `detection_sources` reads the others.
"""

from __future__ import annotations

import json
import re
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import yaml

from bench.detection_forms import SETTINGS, made_from
from bench.detection_sources import NO_SECRET, Row, SampleSource, family_of, is_of_half
from bench.detection_unseen import detect_secrets_rows

# The group of a text, which decides its half; then as in `Row`.
_GroupedRow = tuple[str, str, tuple[str, ...], str]
# Results that are no value: what stands for one, and a piece of a template.
_PLACEHOLDER = re.compile(r"^<.*>$|^\W*\w+\W*$(?<![0-9])(?<!\w{12})|\(")
# A line under a comment may only use what another one holds.
_LITERAL = re.compile(r"[\"'`][^\"'`\s]{6,}[\"'`]")
_MAX_LENGTH, _MAX_LINES = 20_000, 12
# Forms that each further issuer's key is written in.
_FORMS_EACH = 3
_SHORTEST = 12
_NO_KEY = re.compile(
    r"(?i)client.?id|access.?id|app.?id|pub|test|sandbox|generic|kubernetes|curl|private-key|ur[il]|host|domain|site|account"
)


def _text_of(path: Path) -> str | None:
    """Return a file's text; None where it is none, or too long for a message."""
    if path.stat().st_size > _MAX_LENGTH or path.name.startswith(".git"):
        return None
    text = path.read_text(errors="replace")
    return None if "\ufffd" in text or "\0" in text else text


def _sonar(folder: Path) -> Iterator[_GroupedRow]:
    """Examples beside each rule, which say whether they hold a secret and which. Not all files are YAML as a whole."""
    part = re.compile(r"^ +name: (?P<name>.+)\n|^(?P<inset> +)examples:\n(?P<rows>(?:(?P=inset) +\S.*\n|\s*\n)+)", re.M)
    base = "sonar-text-plugin/src/main/resources/org/sonar/plugins/secrets/configuration"
    for path in sorted(folder.glob(f"{base}/*.yaml")):
        name = ""
        for found in part.finditer(path.read_text() + "\n"):
            name = found["name"] or name
            if not found["rows"] or NO_SECRET.search(name):
                continue
            for example in yaml.safe_load(textwrap.dedent(found["rows"])):
                wanted = (str(example.get("match") or "").strip(),) if example["containsSecret"] else ()
                yield path.stem, str(example["text"]), wanted, family_of(name, "vendor") if wanted else "look-alike"


def _annotated(text: str, sign: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Yield what a comment says, and the lines under it as far as the next comment or an empty line."""
    lines = text.splitlines()
    places = [(number, found) for number, line in enumerate(lines) if (found := sign.search(line))]
    for (number, found), (end, _) in pairwise([*places, (len(lines), None)]):
        if found is None:
            continue
        below = "\n".join(lines[number + 1 : min(end, number + 1 + _MAX_LINES)])
        yield found.group(1), re.split(r"\n[ \t]*\n", below.strip("\n"), maxsplit=1)[0]


def _semgrep(folder: Path) -> Iterator[_GroupedRow]:
    """Lines under a comment that says whether a rule finds them."""
    sign = re.compile(r"\b(ruleid|ok): *[a-z]")
    for path in sorted(folder.glob("generic/secrets/security/*")):
        text = None if path.suffix == ".yaml" or NO_SECRET.search(path.stem.replace("-", " ")) else _text_of(path)
        for said, below in _annotated(text or "", sign):
            found = said == "ruleid"
            yield path.stem, below, ("",) if found else (), family_of(path.stem, "vendor") if found else "look-alike"


def _bearer(folder: Path) -> Iterator[_GroupedRow]:
    """Programs of seven languages: lines under a comment that names a rule about secrets."""
    sign = re.compile(r"\bbearer:expected (\w+)|[#/] ?ok\b")
    for path in sorted(folder.glob("tests/*/*/*/testdata/*")):
        text = _text_of(path) if path.is_file() else None
        for said, below in _annotated(text or "", sign):
            if (
                said
                and re.search(r"hardcoded_\w*(?:secret|password)|secrets_secrets|weak_secret_key", said)
                and _LITERAL.search(below)
            ):
                yield path.parents[1].name, below, ("",), "literal in a program"


def _gosec(folder: Path) -> Iterator[_GroupedRow]:
    """Programs in Go, and how many findings each has."""
    code = (folder / "testutils/g101_samples.go").read_text()
    for programs, count in re.findall(r"\{\[\]string\{((?:\s*`[^`]*`,?)+)\s*\}, (\d+)", code):
        for program in re.findall(r"`([^`]*)`", programs):
            yield (
                program,
                program,
                ("",) if count != "0" else (),
                "literal in a program" if count != "0" else "look-alike",
            )


def _pattern_matcher(folder: Path) -> Iterator[_GroupedRow]:
    """Lines of its inputs in which the stored results have a secret; notes are left out."""
    base = folder / "src/Plugins/Tests.Security/TestData/SecurePlaintextSecrets"
    for path in sorted((base / "ExpectedOutputs").glob("*.sarif")):
        for result in json.loads(path.read_text("utf-8-sig"))["runs"][0].get("results", []):
            secret = json.loads(result["fingerprints"].get("secretFingerprint/v0", "{}")).get("secret")
            place = result["locations"][0]["physicalLocation"]
            source = base / "Inputs" / place["artifactLocation"]["uri"].rsplit("/", 1)[-1]
            if not secret or not source.is_file():
                continue
            region = place["region"]
            lines = source.read_text("utf-8-sig").splitlines()[region["startLine"] - 1 : region["endLine"]]
            text = "\n".join(lines)
            if not _PLACEHOLDER.search(secret):
                yield path.stem, text, (secret if secret in text else "",), family_of(path.stem, "vendor")


def _stacs(folder: Path) -> Iterator[_GroupedRow]:
    """Whole files, in folders that say whether their rule finds them."""
    for path in sorted(folder.glob("tests/fixtures/credential/**/*")):
        # A rule for accounts without a password finds no secret.
        text = _text_of(path) if path.is_file() and "blank.yar" not in path.parts else None
        if text is not None:
            found = "positive" in path.parts
            yield path.parents[1].name, text, ("",) if found else (), "file with secrets" if found else "look-alike"


def _leaktk(folder: Path) -> Iterator[_GroupedRow]:
    """Results of its scanner: what matched, and the secret in it. Those over semgrep's examples are left out.

    It was run over `leaktk/fake-leaks`, of which one half by folder was read: texts of that half are not part
    of the unseen half here.
    """
    for row in yaml.safe_load((folder / "testdata/leaktk-scanner-results.yaml").read_text()):
        if row["location.path"].startswith("semgrep") or NO_SECRET.search(row["rule.description"]):
            continue
        place = row["location.path"].split("/")[0]
        if is_of_half(row["rule.description"], 1) and not is_of_half(place, 1):
            continue
        if row.get("match") and row.get("secret"):
            family = family_of(row["rule.description"], "vendor")
            yield row["rule.description"], str(row["match"]), (str(row["secret"]).strip(),), family


def _fake_leaks(folder: Path) -> Iterator[_GroupedRow]:
    """Whole files, in folders that say whether they hold something."""
    for path in sorted(folder.glob("**/*")):
        text = _text_of(path) if path.is_file() and {"valid", "invalid"} & set(path.parts) else None
        if text is not None:
            found = "valid" in path.parts
            place = path.relative_to(folder).parts[0]
            family = family_of(place, "file with secrets") if found else "look-alike"
            yield place, text, ("",) if found else (), family


def _ripsecrets(folder: Path) -> Iterator[_GroupedRow]:
    for path in sorted(folder.glob("test/one_per_line/*")):
        yield from ((path.name, line, ("",), "vendor") for line in path.read_text().splitlines())
    for path in sorted(folder.glob("test/one_per_file/*")):
        yield path.name, path.read_text(), ("",), "file with secrets"
    yield from ((line, line, (), "look-alike") for line in (folder / "test/none").read_text().splitlines())


def _made_for(rules: list[dict[str, Any]]) -> Iterator[_GroupedRow]:
    """Secrets made from the expressions of rules, each in a few settings.

    Where an expression has a group, that is the secret, and what stands around it is left out.
    """
    forms = cycle(SETTINGS)
    for place, rule in enumerate(rules):
        about = f"{rule['id']} {rule.get('description', '')}"
        if _NO_KEY.search(rule["id"]) or NO_SECRET.search(about.replace("-", " ")):
            continue
        pattern = rule.get("regex", "")
        secret = made_from(pattern, place, group=1)
        if secret is None or len(secret) < _SHORTEST:
            continue
        vendor = re.split(r"[-_]", rule["id"])[0]
        for _ in range(_FORMS_EACH):
            text = next(forms).replace("{i}", vendor).replace("{I}", vendor.upper()).replace("{s}", secret)
            yield rule["id"], text, (secret,), family_of(rule["id"], "vendor")


def _betterleaks(folder: Path) -> Iterator[_GroupedRow]:
    """Keys of issuers whom its settings know and those of gitleaks do not."""
    known = tomllib.loads((folder.parent / "gitleaks+gitleaks/config/gitleaks.toml").read_text())["rules"]
    names = {rule["id"] for rule in known}
    rules = tomllib.loads((folder / "config/betterleaks.toml").read_text())["rules"]
    yield from _made_for([rule for rule in rules if rule["id"] not in names])


def _ibm(folder: Path) -> Iterator[_GroupedRow]:
    """Cases of the detectors that Yelp's detect-secrets does not have."""
    for name in ("box_test.py", "db2_test.py", "gh_enterprise_test.py"):
        yield from ((name, *row) for row in detect_secrets_rows(folder, (name,)))


def _half(read: Callable[[Path], Iterator[_GroupedRow]], half: int) -> Callable[[Path], Iterator[Row]]:
    """Return what reads one half of a source's texts, by what they belong to."""

    def read_half(folder: Path) -> Iterator[Row]:
        for group, text, wanted, family in read(folder):
            if is_of_half(group, half):
                yield text, wanted, family

    return read_half


_SOURCES = (
    ("SonarSource+sonar-text", _sonar),
    ("betterleaks+betterleaks", _betterleaks),
    ("leaktk+patterns", _leaktk),
    ("microsoft+sarif-pattern-matcher", _pattern_matcher),
    ("semgrep+semgrep-rules", _semgrep),
    ("stacscan+stacs-rules", _stacs),
    ("sirwart+ripsecrets", _ripsecrets),
    ("Bearer+bearer-rules", _bearer),
    ("securego+gosec", _gosec),
    ("IBM+detect-secrets", _ibm),
)
# One half of each serves to improve the rules; missed texts of the other are never read. `leaktk/fake-leaks` holds the
# texts of `leaktk/patterns`, so that only its read half is here.
LINTERS = (
    *(
        SampleSource(name, "secrets", split, _half(read, half))
        for name, read in _SOURCES
        for half, split in ((0, "tuning"), (1, "held-out, unseen"))
    ),
    SampleSource("leaktk+fake-leaks", "secrets", "tuning", _half(_fake_leaks, 0)),
)
