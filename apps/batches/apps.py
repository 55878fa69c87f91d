"""Django's registration of the app."""

from django.apps import AppConfig


class BatchesConfig(AppConfig):
    """See the package's docstring."""

    name = "apps.batches"
    label = "batches"
