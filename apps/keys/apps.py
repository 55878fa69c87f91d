"""Django's registration of the app."""

from django.apps import AppConfig


class KeysConfig(AppConfig):
    """See the package's docstring."""

    name = "apps.keys"
    label = "keys"
