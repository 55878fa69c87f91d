"""Hooks of organizations: the erasure of guardrails, and the rotation of secrets of outside guards."""

from __future__ import annotations

from uuid import UUID

from apps.guardrails.models import CustomRule, GuardrailConfig, Violation
from apps.kernel.postgres.rows import delete_in_pieces
from apps.kernel.secrets.encryption import Rotated, decrypt, encrypt, reencrypt_rows


def erase(organization_id: UUID) -> None:
    """Remove its configuration, its rules, and what they found."""
    delete_in_pieces(Violation.objects.filter(organization_id=organization_id))
    CustomRule.objects.filter(organization=organization_id).delete()
    GuardrailConfig.objects.filter(organization=organization_id).delete()


# Name of the secrets for the operator.
WORDS = "secrets of outside guards"


def rotate() -> Rotated:
    """Encrypt every guard's secrets with the newest encryption key, so that older ones can be removed."""
    return reencrypt_rows(CustomRule.objects.exclude(encrypted_secrets=b""), "encrypted_secrets", _reencrypt)


def _reencrypt(encrypted: bytes) -> bytes:
    return encrypt(decrypt(encrypted))
