"""Decision records: each has a searchable name, a title, a status, a date, its sections, and is in the index."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

from gateway_project.configuration.data_directory import PROJECT

FOLDER = PROJECT / "docs" / "adr"
RECORDS = sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")
NUMBERS = {path.name[:4] for path in RECORDS}
INDEX = (FOLDER / "README.md").read_text()
SECTIONS = ["Context", "Decision", "Consequences"]
MAX_LINES = 60


def slug(text: str) -> str:
    """Return the text as a part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def test_each_number_is_given_once() -> None:
    assert len(RECORDS) > 50
    assert len(NUMBERS) == len(RECORDS)


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name[:4])
class TestARecord:
    def test_has_a_searchable_name_and_title(self, path: Path) -> None:
        assert re.fullmatch(r"\d{4}(-[a-z0-9]+){2,}\.md", path.name)
        assert not path.stem.endswith("-decision"), "say in a few words what was decided"
        title = re.fullmatch(rf"# {path.name[:4]} ([^:]+): (\S.*)", path.read_text().splitlines()[0])
        assert title is not None, "the first line is `# NNNN Topic: decision`"
        assert path.name[5:].startswith(f"{slug(title[1])}-"), "the name begins with the title's topic"

    def test_states_status_and_date(self, path: Path) -> None:
        """A decision that is not in force any more has no record; the history of the repository has it."""
        lines = path.read_text().splitlines()
        assert lines[1:3] == ["", "- Status: Accepted"]
        assert lines[3].startswith("- Date: ")
        assert date.fromisoformat(lines[3].removeprefix("- Date: ")) >= date(2026, 11, 21)

    def test_has_its_sections(self, path: Path) -> None:
        assert re.findall(r"^## (.+)$", path.read_text(), re.MULTILINE) == SECTIONS

    def test_is_one_to_two_screens(self, path: Path) -> None:
        assert len(path.read_text().splitlines()) <= MAX_LINES

    def test_refers_to_existing_records(self, path: Path) -> None:
        assert set(re.findall(r"(?<![\w.,:-])0\d{3}\b(?!\.\d)", path.read_text())) <= NUMBERS

    def test_is_listed_in_the_index(self, path: Path) -> None:
        title = path.read_text().splitlines()[0].removeprefix(f"# {path.name[:4]} ")
        assert f"| [{path.name[:4]}]({path.name}) | {title} |" in INDEX


def test_the_index_lists_nothing_else() -> None:
    assert sorted(re.findall(r"\]\((\d{4}-[^)]+)\)", INDEX)) == [path.name for path in RECORDS]
