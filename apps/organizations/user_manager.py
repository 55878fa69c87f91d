"""User manager: finds and makes users by e-mail address, always in lower case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.auth.base_user import BaseUserManager

if TYPE_CHECKING:
    from apps.organizations.models import User


class UserManager(BaseUserManager["User"]):
    """Makes and finds users; e-mail addresses are kept, and looked for, in lower case."""

    def get_by_natural_key(self, username: str | None) -> User:
        """Return the user who signs in with this address. Raises User.DoesNotExist."""
        return self.get(email=self.model.normalize_username(username or ""))

    def create_user(self, email: str, password: str | None = None, **fields: Any) -> User:
        """Create a user who signs in with `email`."""
        user = self.model(email=self.model.normalize_username(email), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> User:
        """Create an operator: one who may enter the admin and do everything there."""
        return self.create_user(email, password, is_staff=True, is_superuser=True, **fields)
