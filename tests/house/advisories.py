"""Looks up the pinned packages in a copy of a database of vulnerabilities, without the network.

`script/advisories PATH [FILE ...]` reads advisories in the OSV format (https://ossf.github.io/osv-schema/) from a
folder or a zip archive: a checkout of github.com/pypa/advisory-database, or the archive of all advisories about PyPI
packages that osv.dev publishes. FILE is a requirements file; without one, all of the project's are read.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile, ZipFile

import yaml
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from gateway_project.configuration.data_directory import PROJECT

_PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*])?==([^\s;\\]+)", re.MULTILINE)
_SUFFIXES = (".json", ".yaml", ".yml")


class Finding(NamedTuple):
    """A pinned package with a known vulnerability. `fixed` are the versions that mend it, in the advisory's words."""

    package: str
    version: str
    id: str
    aliases: tuple[str, ...]
    fixed: tuple[str, ...]


def pinned_packages(files: Iterable[Path]) -> dict[str, set[str]]:
    """Return the pinned versions of each package, by its canonical name."""
    pinned: dict[str, set[str]] = {}
    for file in files:
        for name, version in _PINNED.findall(file.read_text()):
            pinned.setdefault(canonicalize_name(name), set()).add(version)
    return pinned


def read_advisories(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the advisories of a folder or a zip archive. Raises ValueError for a file that is no advisory, OSError."""
    for name, text in _files_of(path):
        try:
            # YAML's own loader in Python takes minutes for a whole database.
            value = json.loads(text) if name.endswith(".json") else yaml.load(text, Loader=yaml.CSafeLoader)  # nosec B506
        except (ValueError, yaml.YAMLError) as error:
            raise ValueError(f"{name} is no advisory: {error}") from error
        if isinstance(value, dict) and "affected" in value:
            yield value


def _files_of(path: Path) -> Iterator[tuple[str, bytes]]:
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            if file.suffix in _SUFFIXES and ".git" not in file.parts and ".github" not in file.parts:
                yield str(file), file.read_bytes()
        return
    with ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith(_SUFFIXES):
                yield name, archive.read(name)


def find_vulnerable(pinned: dict[str, set[str]], advisories: Iterable[dict[str, Any]]) -> list[Finding]:
    """Return the pinned packages that an advisory is about, in order. Withdrawn advisories do not count."""
    found = set()
    for advisory in advisories:
        if advisory.get("withdrawn"):
            continue
        for affected in advisory["affected"]:
            package = affected.get("package", {})
            name = canonicalize_name(str(package.get("name", "")))
            if package.get("ecosystem") != "PyPI":
                continue
            for version in pinned.get(name, ()):
                if _is_affected(version, affected):
                    aliases = tuple(sorted(map(str, advisory.get("aliases") or ())))
                    found.add(Finding(name, version, str(advisory["id"]), aliases, _fixes(affected)))
    return sorted(found)


def _events(affected: dict[str, Any]) -> Iterator[dict[str, str]]:
    for one in affected.get("ranges") or ():
        # Ranges of commits say nothing of versions.
        if one.get("type") == "ECOSYSTEM":
            yield from one.get("events") or ()


def _fixes(affected: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(event["fixed"]) for event in _events(affected) if "fixed" in event)


def _is_affected(version: str, affected: dict[str, Any]) -> bool:
    """Return whether a version is listed, or lies in a range: between the event `introduced` and the next end."""
    if version in map(str, affected.get("versions") or ()):
        return True
    events = sorted((_parsed(value), kind) for event in _events(affected) for kind, value in event.items())
    ours, inside = _parsed(version), False
    for at, kind in events:
        if at > ours or (at == ours and kind == "last_affected"):
            break
        inside = kind == "introduced"
    return inside


def _parsed(version: object) -> Version:
    """Return a version that can be compared; OSV's "0" is before all others, as is one that cannot be read."""
    try:
        return Version(str(version))
    except InvalidVersion:
        return Version("0.dev0")


def main(words: list[str]) -> int:
    """Print each finding; return 1 if there is one, 2 if the database cannot be read."""
    if not words:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    files = [Path(word) for word in words[1:]] or sorted(PROJECT.glob("requirements*.txt"))
    pinned = pinned_packages(files)
    try:
        advisories = list(read_advisories(Path(words[0])))
    except (OSError, ValueError, BadZipFile) as error:
        sys.stderr.write(f"{words[0]} cannot be read as a database of advisories: {error}\n")
        return 2
    if not advisories:
        sys.stderr.write(f"{words[0]} has no advisories: name a folder or zip archive of OSV files\n")
        return 2
    found = find_vulnerable(pinned, advisories)
    for one in found:
        names = ", ".join((one.id, *one.aliases))
        fixes = f"fixed in {', '.join(one.fixed)}" if one.fixed else "no fix yet"
        sys.stdout.write(f"{one.package} {one.version}: {names}; {fixes}\n")
    newest = max(str(one.get("modified", "")) for one in advisories)[:10]
    vulnerable = len({one.package for one in found})
    known = f"by {len(advisories):,} advisories up to {newest}"
    sys.stdout.write(f"{vulnerable} of {len(pinned)} packages are vulnerable, {known}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
