"""Price lists in public packages: read from a wheel and a package of npm, whose code may read nothing else."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
import zipfile
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from apps.catalog.price_lists import Listed, read_list
from tests.catalog.package_lists import MissingListError, litellm_list, llmgateway_list, show_differences

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not on PATH")
MODELS = """
export const models = [{
  id: "gpt-5.5",
  providers: [
    {
      providerId: "openai", externalId: "gpt-5.5-2026",
      inputPrice: "5.0e-6", outputPrice: "30.0e-6", cachedInputPrice: "0.5e-6",
    },
    {providerId: "custom"},
  ],
}];
"""


def package(folder: Path, code: str, extra: tuple[tarfile.TarInfo, ...] = ()) -> Path:
    """Write a package as npm packs one."""
    path = folder / "models-1.0.0.tgz"
    files = {"package/package.json": '{"type": "module"}', "package/dist/index.js": code}
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
        for member in extra:
            archive.addfile(member, io.BytesIO(b"x" * member.size))
    return path


def wheel(folder: Path, files: dict[str, str]) -> Path:
    """Write a wheel with these files."""
    path = folder / "litellm-1.0.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def test_the_list_in_litellms_wheel(tmp_path: Path) -> None:
    stated = {"gpt-5.5": {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 5e-06}}
    found = wheel(tmp_path, {"litellm/model_prices_and_context_window_backup.json": json.dumps(stated)})
    [entry] = read_list("litellm", litellm_list(found)).entries
    assert (entry.provider, entry.name, entry.prices) == ("openai", "gpt-5.5", {"input": Decimal(5)})


@pytest.mark.parametrize("is_wheel", [True, False])
def test_a_wheel_without_a_list_is_told_by_its_name(tmp_path: Path, is_wheel: bool) -> None:
    found = wheel(tmp_path, {"litellm/__init__.py": ""})
    if not is_wheel:
        found.write_bytes(b"<html>")
    with pytest.raises(MissingListError, match=r"litellm-1\.0\.0-py3-none-any\.whl has no litellm/model_prices"):
        litellm_list(found)


@needs_node
def test_the_models_in_llm_gateways_package(tmp_path: Path) -> None:
    content = llmgateway_list(package(tmp_path, MODELS), tmp_path)
    prices = {"input": Decimal(5), "output": Decimal(30), "cached_input": Decimal("0.5")}
    assert read_list("llmgateway", content).entries == [Listed("openai", "gpt-5.5-2026", prices)]


@needs_node
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ('import fs from "node:fs"; export const models = fs.readFileSync("/etc/hostname")', "ERR_ACCESS_DENIED"),
        ('import p from "node:child_process"; export const models = p.execSync("id")', "ERR_ACCESS_DENIED"),
        ("export const models = [{id: 1}]", "no models in the form that is known: KeyError"),
        ("export const other = []", "no models in the form that is known"),
    ],
)
def test_a_package_that_wants_more_or_has_no_models_is_refused(tmp_path: Path, code: str, said: str) -> None:
    with pytest.raises(MissingListError, match=said):
        llmgateway_list(package(tmp_path, code), tmp_path)


@needs_node
def test_links_and_paths_that_lead_elsewhere_are_not_unpacked(tmp_path: Path) -> None:
    outside = tarfile.TarInfo("package/../../evil.js")
    outside.size = 3
    link = tarfile.TarInfo("package/link.js")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
    folder = tmp_path / "unpacked"
    folder.mkdir()
    llmgateway_list(package(tmp_path, MODELS, (outside, link)), folder)
    kept = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())
    assert kept == ["package/dist/index.js", "package/package.json"]
    assert not (tmp_path / "evil.js").exists()


def test_differences_are_printed_by_model(capsys: pytest.CaptureFixture[str]) -> None:
    stated = {"gpt-5.5": {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 4e-06}}
    lists = [read_list("litellm", json.dumps(stated).encode())]
    count = show_differences(lists, date(2026, 12, 1))
    lines = capsys.readouterr().out.splitlines()
    assert count == len([line for line in lines if "ours checked" in line])
    at = next(number for number, line in enumerate(lines) if line.startswith("openai/gpt-5.5 (litellm;"))
    assert lines[at + 1] == "    input 5 -> 4"
