"""Django's registration of the kernel."""

from django.apps import AppConfig


class KernelConfig(AppConfig):
    """Shared words; no tables of its own."""

    name = "apps.kernel"
    label = "kernel"
