"""Static files: those that pages of the product load, and no others that libraries bring along."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from django.contrib.staticfiles.finders import AppDirectoriesFinder

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
