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
        lines = path.read_text().splitlines()
        assert lines[1] == ""
        status = re.fullmatch(r"- Status: (?:Accepted|Superseded by (\d{4}))", lines[2])
        assert status is not None
        assert status[1] is None or status[1] in NUMBERS - {path.name[:4]}
        assert lines[3].startswith("- Date: ")
        assert date.fromisoformat(lines[3].removeprefix("- Date: ")) >= date(2026, 11, 21)

    def test_has_its_sections(self, path: Path) -> None:
        assert re.findall(r"^## (.+)$", path.read_text(), re.MULTILINE) == SECTIONS

    def test_refers_to_records_that_there_are(self, path: Path) -> None:
        referred = re.findall(r"(?:^- Amended by: |[(;,] ?|\bin )(0\d{3})\b", path.read_text(), re.MULTILINE)
        assert set(referred) <= NUMBERS

    def test_is_listed_in_the_index(self, path: Path) -> None:
        title = path.read_text().splitlines()[0].removeprefix(f"# {path.name[:4]} ")
        status = path.read_text().splitlines()[2].removeprefix("- Status: ")
        assert f"| [{path.name[:4]}]({path.name}) | {title} | {status}" in INDEX


def test_the_index_lists_nothing_else() -> None:
    assert sorted(re.findall(r"\]\((\d{4}-[^)]+)\)", INDEX)) == [path.name for path in RECORDS]
