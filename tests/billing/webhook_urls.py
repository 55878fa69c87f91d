"""The map of paths as it is where a webhook secret is set."""

from __future__ import annotations

from django.urls import path

from apps.billing import webhooks
from gateway_project import urls

urlpatterns = [*urls.urlpatterns, path("webhooks/stripe", webhooks.stripe)]
handler400, handler403, handler404, handler500 = urls.handler400, urls.handler403, urls.handler404, urls.handler500
