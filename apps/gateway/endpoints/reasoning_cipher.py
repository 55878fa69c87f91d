"""Reasoning cipher: encrypts the thinking that a client carries; only its organization can use it."""

from __future__ import annotations

from uuid import UUID

import msgspec

from apps.kernel.secrets.encryption import UnreadableSecretError, decrypt_content, encrypt_content


class OrganizationCipher(msgspec.Struct, frozen=True):
    """The cipher of one organization's reasoning. Keys are exchanged as everywhere: old ones still open."""

    organization_id: UUID

    def encrypt(self, content: bytes) -> str:
        """Return the content encrypted, with the organization authenticated."""
        return encrypt_content(content, self._name).decode()

    def decrypt(self, text: str) -> bytes:
        """Return the content. Raises ValueError for a text that was changed, or made for another organization."""
        try:
            return decrypt_content(text, self._name)
        except UnreadableSecretError as error:
            raise ValueError(str(error)) from None

    @property
    def _name(self) -> str:
        return f"reasoning:{self.organization_id}"
