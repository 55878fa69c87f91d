"""Static files: those that pages of the product load, and no others that libraries bring along; their names in
production."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from django.contrib.staticfiles.finders import AppDirectoriesFinder
from whitenoise.storage import CompressedManifestStaticFilesStorage

# By the beginnings of their paths. The framework of the API has pages that are off; the API reference is Swagger UI
# alone, without its page for signing in.
SERVED: Final = (
    *("admin/", "admin_site/", "console/", "organizations/", "unfold/"),
    "drf_spectacular_sidecar/swagger-ui-dist/swagger-ui",
)


class ServedFilesFinder(AppDirectoriesFinder):
    """Finds files in the folders of apps, where a page may load them."""

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterator[Any]:
        """Yield path and storage of each."""
        return ((path, storage) for path, storage in super().list(ignore_patterns) if path.startswith(SERVED))

    def find(self, path: str, find_all: Any = False) -> Any:
        """Return the place of one, or of all with the path; an empty list for none."""
        return super().find(path, find_all) if path.startswith(SERVED) else []


class HashedFilesStorage(CompressedManifestStaticFilesStorage):  # type: ignore[misc]  # the library states no types
    """Copies of the files with a hash of their content in their names, which browsers may keep for a year, each beside
    its gzip. Scripts import each other by these names.

    Before the files are collected, a page names them without the hash.
    """

    manifest_strict = False
    support_js_module_import_aggregation = True

    def stored_name(self, name: str) -> str:
        """Return the name with its hash; the name itself for files that are not collected."""
        known: str = self.hashed_files.get(self.hash_key(self.clean_name(name)), name)
        return known

    def hashed_name(self, name: str, *arguments: Any, **options: Any) -> str:
        """Return the name with the hash; the name itself for files of libraries that `SERVED` leaves out."""
        try:
            hashed: str = super().hashed_name(name, *arguments, **options)
        except ValueError:
            return name
        return hashed
