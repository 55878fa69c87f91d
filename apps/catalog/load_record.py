"""Record of the last catalog load, by which a load that would change nothing is skipped.

A load depends on the data files, on the code that reads them and on the rows. When the digest of all three is the
recorded one, another load would find nothing to change: it did not the last time. Reading the files takes most of a
second; the digest takes some milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path

from django.conf import settings
from django.db import connection, transaction

from apps.catalog import files
from apps.catalog.load import Loaded, load
from apps.kernel.postgres.advisory_lock import AdvisoryLock, lock_in_transaction

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
