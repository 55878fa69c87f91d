"""Counts banned words in each folder; the numbers may only fall."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway_project.configuration.data_directory import PROJECT
from tests.house.words import Hit, find_hits, read_files

# Lower a number when you bring a folder below it. Folders at 0 are finished.
CEILINGS = {
    "README.md": 0,
    "CONTRIBUTING.md": 0,
    "SECURITY.md": 0,
    "apps/alerts": 0,
    "apps/batches": 0,
    "apps/billing": 0,
    "apps/catalog": 0,
    "apps/console": 0,
    "apps/gateway": 0,
    "apps/gateway/dialects": 0,
    "apps/guardrails": 0,
    "apps/kernel": 0,
    "apps/keys": 0,
    "apps/limits": 0,
    "apps/destinations": 0,
    "apps/log_sinks": 0,
    "apps/logs": 0,
    "apps/mcp": 0,
    "apps/mcp_servers": 0,
    "apps/oauth": 0,
    "apps/organizations": 0,
    "apps/provider_bills": 0,
    "apps/responses": 0,
    "apps/sandbox": 0,
    "bench": 0,
    "docs": 0,
    "docs/adr": 0,
    "gateway_project": 0,
    "script": 0,
    "templates": 0,
    "tests": 0,
}
# The rest of the repository's text: `docs` without the folders that have a ceiling of their own.
APART = {"docs": "docs/adr"}


def hits_in(folder: str) -> list[Hit]:
    apart = PROJECT / APART.get(folder, "nowhere")
    return [hit for path in read_files(folder) if apart not in path.parents for hit in find_hits(path)]


@pytest.mark.parametrize("folder", CEILINGS)
def test_banned_words_only_become_fewer(folder: str) -> None:
    hits = hits_in(folder)
    places = "\n".join(f"{hit.path}:{hit.line}: {hit.words}" for hit in hits)
    assert len(hits) <= CEILINGS[folder], f"script/words {folder} lists them:\n{places}"


def test_every_folder_of_the_product_has_a_ceiling() -> None:
    apps = {f"apps/{path.parent.name}" for path in (PROJECT / "apps").glob("*/__init__.py")}
    documents = {path.name for path in PROJECT.glob("*.md")} - {"CHANGELOG.md"}
    assert apps | documents | {"gateway_project", "templates", "docs", "script", "tests", "bench"} <= CEILINGS.keys()


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.py", '"""Knows keys. Must never know\nprices."""\n', [(1, "Knows …"), (1, "Must never know")]),
        ("a.py", "x = 1\n# Whoever\n# asks anew\n", [(2, "Whoever"), (2, "Whoever …"), (3, "anew")]),
        ("a.py", 'raise Failure("nobody has a key")\n', [(1, "nobody")]),
        ("a.py", "nobody = 1\nMOST_KEYS = 2\n", [(2, "MOST_KEYS")]),
        ("a.html", "<p>\n  What was said</p>", [(2, "What was"), (2, "What …")]),
        ("a.html", "<p>What happens next?</p>", []),
        ("a.md", "one\n\nOf a key its\nend, once\nmore.\n", [(3, "Of …"), (4, "once more")]),
        ("a.md", "<!-- words: examples -->\nanew\n<!-- words: end -->\nanew", [(4, "anew")]),
    ],
)
def test_a_word_is_found_at_its_line(
    name: str, text: str, found: list[tuple[int, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.house.words.PROJECT", tmp_path)
    (tmp_path / name).write_text(text)
    assert [(hit.line, hit.words) for hit in find_hits(tmp_path / name)] == found
