"""Test material of linters and of further scanners, of which nobody has looked at a missed text.

Knows how they write down what is to be found: examples beside rules, comments above lines, folders, lists of results.
Must never know a rule. Read as `detection_sources` reads the others.
"""

from __future__ import annotations

import json
import re
import textwrap
import tomllib
from collections.abc import Iterator
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import yaml

from bench.detection_forms import SETTINGS, made_from
from bench.detection_sources import NO_SECRET, Row, SampleSource
from bench.detection_unseen import detect_secrets_rows

_SPLIT = "held-out, unseen"
_LONGEST, _MOST_LINES = 20_000, 12
# Forms that each further issuer's key is written in.
_FORMS_EACH = 3


def _text_of(path: Path) -> str | None:
    """Return a file's text; None where it is none, or too long for a message."""
    if path.stat().st_size > _LONGEST or path.name.startswith(".git"):
        return None
    text = path.read_text(errors="replace")
    return None if "\ufffd" in text or "\0" in text else text


def _sonar(folder: Path) -> Iterator[Row]:
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
                yield str(example["text"]), wanted, "vendor" if wanted else "look-alike"


def _annotated(text: str, sign: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Yield what a comment says, and the lines under it as far as the next comment or an empty line."""
    lines = text.splitlines()
    places = [(number, found) for number, line in enumerate(lines) if (found := sign.search(line))]
    for (number, found), (end, _) in pairwise([*places, (len(lines), None)]):
        if found is None:
            continue
        below = "\n".join(lines[number + 1 : min(end, number + 1 + _MOST_LINES)])
        yield found.group(1), re.split(r"\n[ \t]*\n", below.strip("\n"), maxsplit=1)[0]


def _semgrep(folder: Path) -> Iterator[Row]:
    """Lines under a comment that says whether a rule finds them."""
    sign = re.compile(r"\b(ruleid|ok): *[a-z]")
    for path in sorted(folder.glob("generic/secrets/security/*")):
        text = None if path.suffix == ".yaml" or NO_SECRET.search(path.stem.replace("-", " ")) else _text_of(path)
        for said, below in _annotated(text or "", sign):
            found = said == "ruleid"
            yield below, ("",) if found else (), "vendor" if found else "look-alike"


def _bearer(folder: Path) -> Iterator[Row]:
    """Programs of seven languages: lines under a comment that names a rule about secrets."""
    sign = re.compile(r"\bbearer:expected (\w+)|[#/] ?ok\b")
    for path in sorted(folder.glob("tests/*/*/*/testdata/*")):
        text = _text_of(path) if path.is_file() else None
        for said, below in _annotated(text or "", sign):
            if said and re.search(r"hardcoded_\w*(?:secret|password)|secrets_secrets|weak_secret_key", said):
                yield below, ("",), "literal in a program"


def _gosec(folder: Path) -> Iterator[Row]:
    """Programs in Go, and how many findings each has."""
    code = (folder / "testutils/g101_samples.go").read_text()
    for programs, count in re.findall(r"\{\[\]string\{((?:\s*`[^`]*`,?)+)\s*\}, (\d+)", code):
        for program in re.findall(r"`([^`]*)`", programs):
            yield program, ("",) if count != "0" else (), "literal in a program" if count != "0" else "look-alike"


def _pattern_matcher(folder: Path) -> Iterator[Row]:
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
            yield "\n".join(lines), (secret,), "vendor"


def _stacs(folder: Path) -> Iterator[Row]:
    """Whole files, in folders that say whether their rule finds them."""
    for path in sorted(folder.glob("tests/fixtures/credential/**/*")):
        text = _text_of(path) if path.is_file() else None
        if text is not None:
            found = "positive" in path.parts
            yield text, ("",) if found else (), "file with secrets" if found else "look-alike"


def _leaktk(folder: Path) -> Iterator[Row]:
    """Results of its scanner: what matched, and the secret in it. Those over semgrep's examples are left out."""
    for row in yaml.safe_load((folder / "testdata/leaktk-scanner-results.yaml").read_text()):
        if row["location.path"].startswith("semgrep") or NO_SECRET.search(row["rule.description"]):
            continue
        if row.get("match") and row.get("secret"):
            yield str(row["match"]), (str(row["secret"]).strip(),), "vendor"


def _fake_leaks(folder: Path) -> Iterator[Row]:
    """Whole files, in folders that say whether they hold something."""
    for path in sorted(folder.glob("**/*")):
        text = _text_of(path) if path.is_file() and {"valid", "invalid"} & set(path.parts) else None
        if text is not None:
            found = "valid" in path.parts
            yield text, ("",) if found else (), "file with secrets" if found else "look-alike"


def _ripsecrets(folder: Path) -> Iterator[Row]:
    for path in sorted(folder.glob("test/one_per_line/*")):
        yield from ((line, ("",), "vendor") for line in path.read_text().splitlines())
    for path in sorted(folder.glob("test/one_per_file/*")):
        yield path.read_text(), ("",), "file with secrets"
    yield from ((line, (), "look-alike") for line in (folder / "test/none").read_text().splitlines())


def _made_for(rules: list[dict[str, Any]]) -> Iterator[Row]:
    """Secrets made from the expressions of rules, each in a few settings."""
    forms = cycle(SETTINGS)
    for place, rule in enumerate(rules):
        pattern = rule.get("regex", "")
        if re.search(r"(?i)client.?id|access.?id|pub|test|sandbox|generic|kubernetes|curl|private-key|url", rule["id"]):
            continue
        named = re.search(r"\[\\w\.-\]\{0,50\}\?\(\?i?:.*?operator|=>\|\\\?=", pattern)
        body = re.search(r"\{0,5\}\((.*)\)\(\?:\[", pattern) if named else None
        secret = made_from(body.group(1) if body else pattern, place)
        if secret is None:
            continue
        vendor = re.split(r"[-_]", rule["id"])[0]
        for _ in range(_FORMS_EACH):
            text = next(forms).replace("{i}", vendor).replace("{I}", vendor.upper()).replace("{s}", secret)
            yield text, (secret,), "vendor" if body is None else "assignment"


def _betterleaks(folder: Path) -> Iterator[Row]:
    """Keys of issuers whom its settings know and those of gitleaks do not."""
    known = tomllib.loads((folder.parent / "gitleaks+gitleaks/config/gitleaks.toml").read_text())["rules"]
    names = {rule["id"] for rule in known}
    rules = tomllib.loads((folder / "config/betterleaks.toml").read_text())["rules"]
    yield from _made_for([rule for rule in rules if rule["id"] not in names])


def _ibm(folder: Path) -> Iterator[Row]:
    """Cases of the detectors that Yelp's detect-secrets does not have."""
    yield from detect_secrets_rows(folder, ("box_test.py", "db2_test.py", "gh_enterprise_test.py"))


LINTERS = (
    SampleSource("SonarSource+sonar-text", "secrets", _SPLIT, _sonar),
    SampleSource("betterleaks+betterleaks", "secrets", _SPLIT, _betterleaks),
    SampleSource("leaktk+patterns", "secrets", _SPLIT, _leaktk),
    SampleSource("leaktk+fake-leaks", "secrets", _SPLIT, _fake_leaks),
    SampleSource("microsoft+sarif-pattern-matcher", "secrets", _SPLIT, _pattern_matcher),
    SampleSource("semgrep+semgrep-rules", "secrets", _SPLIT, _semgrep),
    SampleSource("stacscan+stacs-rules", "secrets", _SPLIT, _stacs),
    SampleSource("sirwart+ripsecrets", "secrets", _SPLIT, _ripsecrets),
    SampleSource("Bearer+bearer-rules", "secrets", _SPLIT, _bearer),
    SampleSource("securego+gosec", "secrets", _SPLIT, _gosec),
    SampleSource("IBM+detect-secrets", "secrets", _SPLIT, _ibm),
)
