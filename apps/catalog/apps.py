"""Django's registration of the app."""

from django.apps import AppConfig


class CatalogConfig(AppConfig):
    """See the package's docstring."""

    name = "apps.catalog"
    label = "catalog"
