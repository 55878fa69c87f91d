"""Django's registration of the app, which keeps pictures for `/v1/images/*`, and files for requests of all kinds."""

from django.apps import AppConfig


class BatchesConfig(AppConfig):
    """See the package's docstring."""

    name = "apps.batches"
    label = "batches"

    def ready(self) -> None:
        """Install the stores of files and pictures in the gateway, which cannot import this app."""
        from apps.batches.access import RequestFiles
        from apps.batches.kept_pictures import PictureStore
        from apps.gateway.endpoints import images
        from apps.gateway.upstream import kept_files

        kept_files.install(RequestFiles())
        images.install(PictureStore())
