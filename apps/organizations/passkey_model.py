"""Passkeys: columns and constraints."""

from __future__ import annotations

from django.db import models

from apps.kernel.ids import new_id


class Passkey(models.Model):
    """A public key; an authenticator of the user holds the private key (WebAuthn)."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    user = models.ForeignKey("organizations.User", models.CASCADE, related_name="passkeys")
    name = models.CharField(max_length=100)
    # Chosen by the authenticator, at most 1,023 bytes, unique among all users.
    credential_id = models.BinaryField(unique=True, editable=False, max_length=1023)
    # COSE.
    public_key = models.BinaryField(editable=False)
    # The authenticator's last signature counter: it must grow if the authenticator counts at all.
    sign_count = models.BigIntegerField(default=0)
    transports = models.JSONField(default=list)
    # Whether the private key is backed up, as password managers do.
    backed_up = models.BooleanField(default=False)
    last_used_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name
