"""Fields of the API that destinations of several kinds have."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.kernel.rest.serializers import TextField
from apps.kernel.secrets.webhook_signature import secret_key

# Characters of a credential.
MAX_KEY = 200


class WebhookSecretField(TextField):
    """The signing secret of a webhook, as in Standard Webhooks (https://www.standardwebhooks.com); never required."""

    def __init__(self) -> None:
        super().__init__(
            max_length=MAX_KEY, required=False, help_text="For a webhook: whsec_ followed by 24 to 64 bytes in base64"
        )

    def to_internal_value(self, data: Any) -> str:
        """Return the secret. Raises ValidationError."""
        text = super().to_internal_value(data)
        try:
            secret_key(text)
        except ValueError as error:
            raise serializers.ValidationError("Must be whsec_ followed by 24 to 64 bytes in base64") from error
        return text
