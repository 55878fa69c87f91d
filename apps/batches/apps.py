"""Django's registration of the app, which keeps pictures for `/v1/images/*`."""

from django.apps import AppConfig


class BatchesConfig(AppConfig):
    """See the package's docstring."""

    name = "apps.batches"
    label = "batches"

    def ready(self) -> None:
        """Let the images endpoints keep pictures here: the gateway cannot see what is above it."""
        from apps.batches.kept_pictures import PictureStore
        from apps.gateway.endpoints import picture_links

        picture_links.install(PictureStore())
