"""Django's registration of the app, which keeps pictures for `/v1/images/*`, and files for requests of all kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.apps import AppConfig

if TYPE_CHECKING:
    from apps.batches.access import RequestFiles
    from apps.batches.kept_pictures import PictureStore


class BatchesConfig(AppConfig):
    """See the package's docstring."""

    name = "apps.batches"
    label = "batches"

    def ready(self) -> None:
        """Install the stores of files and pictures in the gateway, which cannot import this app."""
        from apps.gateway.endpoints import image_links
        from apps.gateway.upstream import kept_files

        kept_files.install(_load_files)
        image_links.install(_load_pictures)


def _load_files() -> RequestFiles:
    from apps.batches.access import RequestFiles

    return RequestFiles()


def _load_pictures() -> PictureStore:
    from apps.batches.kept_pictures import PictureStore

    return PictureStore()
