"""docs/security.md and docs/reliability.md name tests, targets, attacks and faults that there are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway_project.configuration.data_directory import PROJECT
from tests.attack.hostile import attacks
from tests.chaos.faults import FAULTS
from tests.fuzz.target import all_targets

TESTS = PROJECT / "tests"
# Short names in the table of vulnerabilities.
SHORT = {
    "known": "security/test_known_vulnerabilities.py",
    "words": "security/test_credentials_and_words.py",
    "built": "security/test_code_and_packages.py",
}
FUNCTIONS = {
    path.relative_to(TESTS): set(re.findall(r"(?:def |^class )(test_\w+|Test\w+)", path.read_text(), re.MULTILINE))
    for path in TESTS.rglob("test_*.py")
}


def named(document: str) -> Iterator[tuple[str, str]]:
    """Yield what a document names: a file, or a kind, and a name. `::test_x` goes on with the file before."""
    file = ""
    for token in re.findall(r"`([^`]+)`", (PROJECT / "docs" / document).read_text()):
        kind, colon, name = token.partition(":")
        if kind in {"fuzz", "attack", "chaos"} and colon:
            yield kind, name
        elif "::" in token or token.endswith(".py"):
            start, *_, end = [*token.split("::"), ""] if "::" not in token else token.split("::")
            file = SHORT.get(start, start) or file
            if file.startswith(("test_", "security/…")) or "/test_" in file:
                yield file, end


@pytest.mark.parametrize("document", ["security.md", "reliability.md"])
def test_what_a_document_names_is_there(document: str) -> None:
    known = {
        "fuzz": set(all_targets()),
        "attack": {name for name, _ in attacks()},
        "chaos": {fault.name for fault in FAULTS},
    }
    found = list(named(document))
    assert len(found) > 30
    missing = []
    for file, name in found:
        if file in known:
            missing += [f"{file}:{name}"] if name not in known[file] and "<" not in name and "NAME" not in name else []
        elif "…" in file:
            missing += [] if any(name in functions for functions in FUNCTIONS.values()) else [f"{file}::{name}"]
        elif "*" in file:
            missing += [] if list(TESTS.glob(file)) else [file]
        elif name not in {"", *FUNCTIONS.get(Path(file), set())} or not (TESTS / file).is_file():
            missing.append(f"{file}::{name}")
    assert missing == []
