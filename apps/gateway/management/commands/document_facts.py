"""`manage.py document_facts`: the tables of facts in the documents, written from what the dialects declare.

A table stands between `<!-- facts: <name> -->` and `<!-- /facts -->`. `--check` writes nothing and fails for one that
differs from the declarations.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from msgspec import NODEFAULT, Meta

from apps.catalog.facts import SharedFacts
from apps.gateway.dialects.declared_facts import KIND_FACTS, find_facts
from apps.gateway.dialects.media.images import ImageCapabilities

DOCUMENTS = ("docs/adding-a-dialect.md", "docs/adding-a-provider.md")
_TABLE = re.compile(r"(<!-- facts: (\w+) -->\n).*?(<!-- /facts -->)", re.DOTALL)
_OTHERS: dict[str, type[msgspec.Struct]] = {"shared": SharedFacts, "images": ImageCapabilities, **KIND_FACTS}


def with_tables(text: str) -> str:
    """Return a document with every table of facts as it is declared. Raises ValueError for a name of no facts."""
    return _TABLE.sub(lambda found: f"{found[1]}{table_of(found[2])}{found[3]}", text)


def table_of(name: str) -> str:
    """Return the table of a dialect's facts, of the `shared` ones, or of those of a kind of request."""
    declared = _OTHERS.get(name) or find_facts(name)
    if declared is None:
        raise ValueError(f"no dialect declares facts under the name {name!r}")
    hints = get_type_hints(declared, include_extras=True)
    # Facts that a dialect adds to another's have a table of their own; the rest is in the other's.
    others = {name for base in declared.__bases__ for name in getattr(base, "__struct_fields__", ())}
    rows = [_row(field, hints[field.name]) for field in msgspec.structs.fields(declared) if field.name not in others]
    return "\n".join(("| key | default | meaning |", "|---|---|---|", *rows, ""))


class Command(BaseCommand):
    """See the module's docstring."""

    help = "Write the tables of facts in the documents from what the dialects declare."

    def add_arguments(self, parser: CommandParser) -> None:
        """Take `--check`."""
        parser.add_argument("--check", action="store_true", help="write nothing; fail if a table is not up to date")

    def handle(self, *args: Any, **options: Any) -> None:
        """Write the documents, or say which are not up to date."""
        for name in DOCUMENTS:
            path = Path(settings.BASE_DIR) / name
            text = path.read_text("utf-8")
            written = with_tables(text)
            if written == text:
                continue
            if options["check"]:
                raise CommandError(f"{name} is not up to date: run `manage.py document_facts`")
            path.write_text(written, "utf-8")
            self.stdout.write(f"{name}: written")


def _row(field: msgspec.structs.FieldInfo, kind: Any) -> str:
    [meta] = [part for part in kind.__metadata__ if isinstance(part, Meta)]
    words = _words_of(get_args(kind)[0])
    meaning = f"{meta.description} ({words})" if words else meta.description
    return f"| `{field.name}` | {(meta.extra or {}).get('default') or _default_of(field)} | {meaning} |"


def _words_of(kind: Any) -> str:
    """Return the words that a fact may be, where it may be one of a few."""
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    parts = [part for part in (get_args(kind) or ()) if part is not type(None)]
    if len(parts) == 1 and get_args(parts[0]):
        return _words_of(parts[0])
    return ", ".join(f"`{part}`" for part in parts) if parts and all(isinstance(part, str) for part in parts) else ""


def _default_of(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return ""
    default = field.default_factory() if field.default is NODEFAULT else field.default
    if default is None:
        return "none"
    if isinstance(default, frozenset | tuple):
        default = sorted(default)
    return f"`{json.dumps(default)}`"
