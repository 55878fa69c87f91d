"""`script/price-lists`: the catalog's files against the price lists in public packages, before a release.

LiteLLM's list is in its wheel (PyPI); LLM Gateway's models are a package of npm, whose code Node runs without access to
other files, processes or native modules. Nothing is changed: the differences are printed as `catalog propose` prints
them, and `FOLDER` keeps both lists.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

import django

from apps.catalog.files import read_leniently
from apps.catalog.price_lists import MAX_BYTES, PriceList, read_list
from apps.catalog.proposals import compare, describe

_LITELLM_LIST: Final = "litellm/model_prices_and_context_window_backup.json"
_LLMGATEWAY: Final = "@llmgateway/models"
# Its prices for a token, by the field of `/v1/models` (`price_lists`).
_FIELDS: Final = {
    "prompt": "inputPrice",
    "completion": "outputPrice",
    "input_cache_read": "cachedInputPrice",
    "input_cache_write": "cacheWriteInputPrice",
}
_SHOW_MODELS: Final = (
    "import(process.argv[1]).then(found => process.stdout.write(JSON.stringify(found.models ?? null)))"
)
# Seconds for one package.
_PATIENCE: Final = 300
# The last major version of Node in which restricting a program is an experiment.
_LAST_EXPERIMENTAL: Final = 23
# Files of a package of npm, and their bytes.
_MAX_FILES, _MAX_UNPACKED = 5_000, 100_000_000


class MissingListError(Exception):
    """A package could not be had, or has no list; the message says why."""


def fetch_packages(folder: Path) -> tuple[Path, Path]:
    """Return the newest wheel of LiteLLM and package of LLM Gateway's models. Raises MissingListError."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    _run([*pip, "--dest", str(folder), "litellm"])
    name = _run(["npm", "pack", "--silent", "--pack-destination", str(folder), _LLMGATEWAY]).decode().split()[-1]
    return max(folder.glob("litellm-*.whl"), key=lambda path: path.stat().st_mtime), folder / name


def litellm_list(wheel: Path) -> bytes:
    """Return LiteLLM's list of prices in its wheel. Raises MissingListError."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(_LITELLM_LIST) as file:
            return file.read(MAX_BYTES + 1)
    except (KeyError, OSError, zipfile.BadZipFile) as error:
        raise MissingListError(f"{wheel.name} has no {_LITELLM_LIST} that can be read") from error


def llmgateway_list(package: Path, folder: Path) -> bytes:
    """Return the models of LLM Gateway's package in the form of its `/v1/models`. Raises MissingListError.

    The package is unpacked into `folder`.
    """
    try:
        with tarfile.open(package) as archive:
            members = archive.getmembers()
            if len(members) > _MAX_FILES or sum(member.size for member in members) > _MAX_UNPACKED:
                raise MissingListError(f"{package.name} is larger than a list of models can be")
            for member in members:
                _unpack(archive, member, folder.resolve())
    except (OSError, tarfile.TarError) as error:
        raise MissingListError(f"{package.name} cannot be unpacked: {error}") from error
    main = (folder / "package" / "dist" / "index.js").resolve()
    # The package's code reads itself, and nothing else.
    allowed = f"--allow-fs-read={main.parent.parent}/*"
    major = int(_run(["node", "--version"]).decode().lstrip("v").partition(".")[0])
    permission = "--permission" if major > _LAST_EXPERIMENTAL else "--experimental-permission"
    shown = _run(["node", permission, "--no-warnings", allowed, "--eval", _SHOW_MODELS, str(main)])
    try:
        return json.dumps({"data": list(map(_listed, json.loads(shown)))}).encode()
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise MissingListError(f"{package.name} has no models in the form that is known: {error!r}") from error


def _unpack(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Write a file of the package; links, and paths that lead elsewhere, are left out."""
    place = (folder / member.name).resolve()
    content = archive.extractfile(member) if member.isreg() else None
    if content is not None and place.is_relative_to(folder / "package"):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.read())


def _listed(model: dict[str, Any]) -> dict[str, Any]:
    providers = [
        {
            "providerId": one["providerId"],
            "modelName": one.get("externalId", model["id"]),
            "pricing": {field: one[ours] for field, ours in _FIELDS.items() if one.get(ours) is not None},
        }
        for one in model["providers"]
    ]
    return {"id": model["id"], "providers": providers}


def show_differences(lists: Sequence[PriceList], today: date) -> int:
    """Print what the lists say that the catalog's files do not; return the number of proposals."""
    comparison = compare(read_leniently(), lists, today)
    for note in comparison.notes:
        _say(note)
    for proposal in comparison.proposals:
        _say("\n".join(describe(proposal, today)))
    return len(comparison.proposals)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _run(command: Sequence[str]) -> bytes:
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PATIENCE, check=True)
    except FileNotFoundError as error:
        raise MissingListError(f"{command[0]} is not on PATH; install it, or name the package by an option") from error
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", b"") or b"").decode("utf-8", "replace").strip()[-300:]
        raise MissingListError(f"{' '.join(command[:4])} … failed: {said or error}") from error
    return done.stdout


def main() -> int:
    """Read the arguments, fetch what they do not name, and print the differences."""
    parser = argparse.ArgumentParser(prog="script/price-lists", description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where packages and lists are kept")
    parser.add_argument("--litellm", type=Path, metavar="WHEEL", help="a wheel that was fetched before")
    parser.add_argument("--llmgateway", type=Path, metavar="TGZ", help="a package that was fetched before")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    django.setup()
    try:
        wheel, package = chosen.litellm, chosen.llmgateway
        if wheel is None or package is None:
            found = fetch_packages(chosen.folder)
            wheel, package = wheel or found[0], package or found[1]
        lists = {"litellm": litellm_list(wheel), "llmgateway": llmgateway_list(package, chosen.folder)}
    except MissingListError as error:
        sys.stderr.write(f"script/price-lists: {error}\n")
        return 1
    for kind, content in lists.items():
        (chosen.folder / f"{kind}.json").write_bytes(content)
    _say(f"{wheel.name} and {package.name} against the catalog's files:\n")
    count = show_differences([read_list(kind, content) for kind, content in lists.items()], datetime.now(UTC).date())
    _say(f"\n{count} differences. `catalog propose --source litellm={chosen.folder}/litellm.json` applies some.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
