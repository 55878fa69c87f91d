"""Catalog loader: data files -> rows. Facts are rewritten; operators' columns and rows stay. Idempotent.

The files are the product's, merged with applied proposals and with those in CATALOG_DIR. Price changes are added to the
price history. A load depends on the data files, on the code that reads them and on the rows. When the digest of all
three is the recorded one, another load would find nothing to change and is skipped: reading the files takes most of a
second, the digest some milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, get_args

import msgspec
from django.conf import settings
from django.db import connection, transaction

from apps.catalog import files, models, price_history
from apps.catalog.price_cards import write_card
from apps.catalog.stored_proposals import read_accepted
from apps.kernel.postgres.advisory_lock import AdvisoryLock, lock_in_transaction
from apps.kernel.valkey import generation

_KEPT_AS_FACTS = ("aliases", "editions", "reasoning_efforts", "reasoning_budget", "dialect", "dimensions")

Rows = dict[tuple[str, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of a load: rows in the files, and rows added, changed and withdrawn."""

    providers: int
    models: int
    mappings: int
    added: int = 0
    changed: int = 0
    withdrawn: int = 0

    def __str__(self) -> str:
        return (
            f"catalog: {self.providers} providers, {self.models} models, {self.mappings} mappings; "
            f"{self.added} added, {self.changed} changed, {self.withdrawn} withdrawn"
        )


def load(
    folder: Path = files.FOLDER,
    today: date | None = None,
    author: str | Mapping[price_history.At, str] = price_history.LOADER,
    only: Collection[price_history.At] | None = None,
) -> Loaded:
    """Update the rows to the data files below `folder` and in CATALOG_DIR, in one transaction.

    `author` of the price history's entries: the command, or the operator's address. With `only`, other offers stay as
    they are, and an applied proposal that makes the files invalid is an error; a whole load leaves it out.

    A row that returns to the files becomes file-owned and keeps its operations columns. A mapping whose entry vanished
    is deactivated as of `today` and no longer file-owned; a model or provider without an entry only stops being
    file-owned. Raises InvalidFiles, and then changes nothing.
    """
    withdrawal = {"deactivated_at": today or datetime.now(UTC).date()}
    with transaction.atomic():
        # Servers that start together load one after the other, and none loads proposals of before another's decision.
        lock_in_transaction(AdvisoryLock.LOAD_CATALOG)
        read = files.read_files if only is not None else files.read_leniently
        catalog = read(folder, settings.CATALOG_DIR, read_accepted())
        providers: Rows = {(file.id,): _provider_facts(file) for file in catalog.providers}
        entries: Rows = {
            (entry.id,): _model_facts(family, entry) for family in catalog.families for entry in family.models
        }
        mappings: Rows = {
            (file.id, mapping.id): _mapping_facts(mapping, mode=entries[mapping.id,]["mode"])
            for file in catalog.providers
            for mapping in file.models
        }
        before = price_history.cards_now()
        done = [
            _write(models.Provider, ("id",), providers, {}, only=None if only is None else ()),
            _write(models.Model, ("id",), entries, {}, only=None if only is None else {(model,) for _, model in only}),
            _write(models.ModelProvider, ("provider_id", "model_id"), mappings, withdrawal, only=only),
        ]
        added, changed, withdrawn = (sum(counts) for counts in zip(*done, strict=True))
        if added or changed or withdrawn:
            price_history.note_changes(before, price_history.cards_now(), author)
            generation.bump_on_commit(generation.CATALOG)
    return Loaded(len(providers), len(entries), len(mappings), added, changed, withdrawn)


def find_differences(folder: Path = files.FOLDER, today: date | None = None) -> list[str]:
    """Return the changes that a load would make, a line a row: `+` added, `~` changed, `-` withdrawn. Changes nothing.

    It runs a load and rolls it back. Raises InvalidFiles.
    """
    with transaction.atomic():
        before = _rows_now()
        load(folder, today)
        after = _rows_now()
        transaction.set_rollback(True)
    return [line for at in sorted({*before, *after}) if (line := _difference(at, before.get(at), after.get(at)))]


def _rows_now() -> Rows:
    """Return all rows, by table and key."""
    ignored = {"id", "created_at", "updated_at"}
    tables = (("provider", models.Provider), ("model", models.Model), ("mapping", models.ModelProvider))
    found: Rows = {}
    for kind, table in tables:
        rows: list[dict[str, Any]] = [dict(row) for row in table.objects.values()]
        for row in rows:
            key = f"{row['provider_id']}/{row['model_id']}" if kind == "mapping" else row["id"]
            found[kind, key] = {name: value for name, value in row.items() if name not in ignored}
    return found


def _difference(at: tuple[str, ...], old: dict[str, Any] | None, new: dict[str, Any] | None) -> str:
    """Return the line of a row; empty if nothing differs."""
    name = " ".join(at)
    if old is None or new is None:
        return f"+ {name}" if old is None else f"- {name}"
    changes = [
        f"{column} {_text_of(old[column])} -> {_text_of(new[column])}"
        for column in new
        if column != "file_owned" and old[column] != new[column]
    ]
    if old["file_owned"] and not new["file_owned"]:
        return f"- {name}: no longer in any file"
    return f"~ {name}: {', '.join(changes or ['now in a file'])}" if old != new else ""


def _text_of(value: Any) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)


def _write(
    table: type[models.CatalogRow],
    key: tuple[str, ...],
    stated: Rows,
    withdrawal: dict[str, Any],
    only: Collection[tuple[str, ...]] | None = None,
) -> tuple[int, int, int]:
    """Write the rows that differ from the files, or `only` some. Return how many were added, changed and withdrawn."""
    stated = {at: {**facts, "file_owned": True} for at, facts in stated.items() if only is None or at in only}
    columns = list(next(iter(stated.values()), {"file_owned": True}))
    found = {tuple(row[name] for name in key): row for row in table.objects.values("pk", *key, *columns).order_by(*key)}
    differing = {
        at: facts
        for at, facts in stated.items()
        if at not in found or any(found[at][name] != value for name, value in facts.items())
    }
    table.objects.bulk_create(
        [table(**dict(zip(key, at, strict=True)), **facts) for at, facts in sorted(differing.items())],
        update_conflicts=True,
        unique_fields=[name.removesuffix("_id") for name in key],
        update_fields=[*columns, "updated_at"],
    )
    vanished = [
        row["pk"]
        for at, row in found.items()
        if row["file_owned"] and at not in stated and (only is None or at in only)
    ]
    if vanished:
        table.objects.filter(pk__in=vanished).update(file_owned=False, **withdrawal)
    added = sum(at not in found for at in differing)
    return added, len(differing) - added, len(vanished)


def _provider_facts(file: files.ProviderFile) -> dict[str, Any]:
    kept = ("name", "dialect", "auth", "base_url", "api_key_env", "website")
    facts = {"facts": msgspec.to_builtins(file.facts), "checked_on": file.checked}
    return {name: getattr(file, name) for name in kept} | facts


def _model_facts(family: files.FamilyFile, entry: files.ModelEntry) -> dict[str, Any]:
    kept = ("name", "description", "mode", "aliases", "context_length", "max_output")
    facts = {"tokenizer": family.tokenizer, "knowledge": entry.knowledge, "open_weights": entry.open_weights}
    return {name: getattr(entry, name) for name in kept} | {
        "family": family.family,
        "owned_by": entry.owned_by or "",
        "released_on": entry.released,
        "input_modalities": entry.input_modalities,
        "output_modalities": entry.output_modalities,
        "facts": {name: value for name, value in facts.items() if value is not None},
    }


def _mapping_facts(mapping: files.Mapping, *, mode: str) -> dict[str, Any]:
    stated: dict[str, Any] = msgspec.to_builtins(mapping)
    chats = mode == "chat"
    return {
        "model_name": mapping.own_names[0],
        "prices": write_card(mapping.card),
        "context_length": mapping.context,
        "max_output": mapping.max_output,
        "streaming": chats if mapping.streaming is None else mapping.streaming,
        "cancellation": chats if mapping.cancellation is None else mapping.cancellation,
        "temperature": mapping.temperature,
        "stability": mapping.stability,
        "deprecated_at": mapping.deprecated,
        "deactivated_at": mapping.deactivated,
        "facts": {name: stated[name] for name in _KEPT_AS_FACTS if name in stated} | msgspec.to_builtins(mapping.facts),
        **{feature: feature in mapping.features for feature in get_args(files.Feature)},
    }


# Every column of every row: what operators and other programs changed is noticed.
_ROWS = """
    SELECT md5(string_agg(md5(t::text), '' ORDER BY id)) FROM catalog_provider t
    UNION ALL SELECT md5(string_agg(md5(t::text), '' ORDER BY id)) FROM catalog_model t
    UNION ALL SELECT md5(string_agg(md5(t::text), '' ORDER BY id)) FROM catalog_modelprovider t
    UNION ALL SELECT md5(string_agg(md5(t::text), '' ORDER BY id)) FROM catalog_catalogproposal t
        WHERE t.state = 'applied'
"""
_LOCK = "LOCK TABLE catalog_provider, catalog_model, catalog_modelprovider IN SHARE ROW EXCLUSIVE MODE"


def load_if_changed(record: Path, code: Iterable[Path] = ()) -> Loaded | None:
    """Load the catalog, or return None when nothing has changed since the load that `record` is about.

    `record` is a file, which need not exist. `code` are folders beside this one whose modules validate data files.
    Raises InvalidFiles; then nothing is changed. Raises OSError when the record cannot be written.
    """
    inputs = _digest_of_files((files.FOLDER, *code))
    if inputs is not None and _read(record) == inputs + _digest_of_rows():
        return None
    with transaction.atomic():
        # In the loader's order; no other program may change rows between the load and their digest.
        lock_in_transaction(AdvisoryLock.LOAD_CATALOG)
        with connection.cursor() as cursor:
            cursor.execute(_LOCK)
        done = load()
        rows = _digest_of_rows()
    if inputs is not None:
        draft = record.with_suffix(".new")
        draft.write_text(inputs + rows)
        draft.replace(record)
    return done


def _read(record: Path) -> str:
    try:
        return record.read_text()
    except (OSError, ValueError):
        return ""


def _digest_of_files(folders: Iterable[Path]) -> str | None:
    """Return the digest of the product's files and the operator's; None if one cannot be read, which a load reports."""
    digest = blake2b(settings.VERSION.encode(), digest_size=16)
    own = settings.CATALOG_DIR
    try:
        for path in (*_product_files(folders), *(files.visible_paths(own) if own else ())):
            content = path.read_bytes() if path.is_file() else b""
            digest.update(f"{path}\0{len(content)}\0".encode(errors="surrogateescape"))
            digest.update(content)
    except OSError:
        return None
    return digest.hexdigest()


def _product_files(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        yield from sorted(path for path in folder.rglob("*") if path.suffix in {".py", ".toml"})


def _digest_of_rows() -> str:
    with connection.cursor() as cursor:
        cursor.execute(_ROWS)
        digests = [str(digest) for (digest,) in cursor.fetchall()]
    return blake2b(" ".join(digests).encode(), digest_size=16).hexdigest()
