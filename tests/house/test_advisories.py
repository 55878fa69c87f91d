"""The look-up of pinned packages in a database of vulnerabilities, as `script/advisories` does it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from tests.house import advisories


def advisory(identifier: str, package: str, *events: dict[str, str], **more: Any) -> dict[str, Any]:
    affected = {"package": {"ecosystem": "PyPI", "name": package}, "ranges": [{"type": "ECOSYSTEM", "events": events}]}
    return {"id": identifier, "modified": "2026-11-01T00:00:00Z", "affected": [affected | more.pop("also", {})], **more}


@pytest.mark.parametrize(
    ("version", "events", "vulnerable"),
    [
        ("1.9", [{"introduced": "0"}, {"fixed": "2.0"}], True),
        ("2.0", [{"introduced": "0"}, {"fixed": "2.0"}], False),
        ("1.10", [{"introduced": "1.9"}], True),
        ("1.8", [{"introduced": "1.9"}], False),
        ("1.9", [{"introduced": "1.9"}, {"last_affected": "1.9"}], True),
        ("1.9.1", [{"introduced": "1.9"}, {"last_affected": "1.9"}], False),
        ("4.2", [{"introduced": "5.0"}, {"fixed": "5.0.8"}, {"introduced": "4.2"}, {"fixed": "4.2.15"}], True),
        ("4.2.15", [{"introduced": "5.0"}, {"fixed": "5.0.8"}, {"introduced": "4.2"}, {"fixed": "4.2.15"}], False),
        ("5.0.7", [{"introduced": "5.0", "fixed": "5.0.8"}], True),
    ],
)
def test_a_version_is_vulnerable_within_its_ranges(version: str, events: list[Any], vulnerable: bool) -> None:
    found = advisories.find_vulnerable({"some-package": {version}}, [advisory("PYSEC-1", "Some_Package", *events)])
    assert [one.version for one in found] == ([version] if vulnerable else [])


def test_listed_versions_count_and_withdrawn_advisories_and_other_ecosystems_do_not() -> None:
    listed = advisory("PYSEC-1", "one", also={"ranges": [], "versions": ["1.0"]}, aliases=["CVE-1"])
    withdrawn = advisory("PYSEC-2", "one", {"introduced": "0"}, withdrawn="2026-01-01T00:00:00Z")
    other = advisory("GHSA-3", "one", {"introduced": "0"}, also={"package": {"ecosystem": "npm", "name": "one"}})
    commits = advisory("PYSEC-4", "one", also={"ranges": [{"type": "GIT", "events": [{"introduced": "0"}]}]})
    found = advisories.find_vulnerable({"one": {"1.0", "2.0"}}, [listed, withdrawn, other, commits])
    assert found == [("one", "1.0", "PYSEC-1", ("CVE-1",), ())]


def test_pinned_packages_have_canonical_names(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("Some_Package[extra]==1.0 \\\n    --hash=sha256:00\nother==2.0 ; python_version > '3'\n# no==1\n")
    assert advisories.pinned_packages([file]) == {"some-package": {"1.0"}, "other": {"2.0"}}


def test_the_script_reads_folders_and_archives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pins = tmp_path / "requirements.txt"
    pins.write_text("one==1.0\ntwo==2.0\n")
    folder = tmp_path / "vulns" / "one"
    folder.mkdir(parents=True)
    text = json.dumps(advisory("PYSEC-1", "one", {"introduced": "0"}, {"fixed": "1.1"}, aliases=["CVE-1"]))
    (folder / "PYSEC-1.yaml").write_text(text)
    with ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("PYSEC-1.json", text)
    for place in (tmp_path / "vulns", tmp_path / "all.zip"):
        assert advisories.main([str(place), str(pins)]) == 1
        assert capsys.readouterr().out.splitlines() == [
            "one 1.0: PYSEC-1, CVE-1; fixed in 1.1",
            "1 of 2 packages are vulnerable, by 1 advisories up to 2026-11-01",
        ]
    pins.write_text("one==1.1\n")
    assert advisories.main([str(tmp_path / "vulns"), str(pins)]) == 0


@pytest.mark.parametrize("text", ["{", None])
def test_a_place_without_advisories_is_an_error(
    text: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / "bad.json").write_text(text)
    assert advisories.main([str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err
