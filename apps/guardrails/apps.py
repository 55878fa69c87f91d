"""Django's registration of the app."""

from django.apps import AppConfig


class GuardrailsConfig(AppConfig):
    """See the package's docstring."""

    name = "apps.guardrails"
    label = "guardrails"
