"""Passkeys: columns and constraints. Must never know how one is verified."""

from __future__ import annotations

from django.db import models

from apps.kernel.ids import new_id


class Passkey(models.Model):
    """A public key whose private half an authenticator of the user's keeps (WebAuthn)."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    user = models.ForeignKey("organizations.User", models.CASCADE, related_name="passkeys")
    name = models.CharField(max_length=100)
    # Of the authenticator's choosing, at most 1,023 bytes; nobody else's, whoever they are.
    credential_id = models.BinaryField(unique=True, editable=False, max_length=1023)
    # COSE.
    public_key = models.BinaryField(editable=False)
    # What the authenticator counted last: it must grow, where it counts at all.
    sign_count = models.BigIntegerField(default=0)
    transports = models.JSONField(default=list)
    # Whether copies of the private key are kept elsewhere, as password managers do.
    backed_up = models.BooleanField(default=False)
    last_used_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name
