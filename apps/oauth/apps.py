"""Django's registration of the app."""

from django.apps import AppConfig


class OAuthConfig(AppConfig):
    """See the package's docstring."""

    name = "apps.oauth"
    label = "oauth"
    verbose_name = "OAuth"
