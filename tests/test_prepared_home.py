"""The prepared home of the product's tests: a preparation that was cut short is done again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stack import prepared_home


def test_a_preparation_that_was_cut_short_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "homes").mkdir()
    monkeypatch.setenv(prepared_home.VARIABLE, str(tmp_path / "homes"))
    done: list[str] = []

    def prepare(home: Path) -> None:
        (home / f"left by {len(done)}").touch()
        done.append("begun")
        if len(done) == 1:
            raise TimeoutError("the test took too long")

    with pytest.raises(TimeoutError):
        prepared_home.fill(tmp_path / "a", {}, prepare)
    for name in ("b", "c"):
        prepared_home.fill(tmp_path / name, {}, prepare)
        assert [file.name for file in (tmp_path / name).iterdir()] == ["left by 1"]
    assert len(done) == 2
