"""OAuth clients, consents, codes and tokens: columns and constraints.

Tokens and codes are stored as SHA-256 digests only. Unused fields of the library's models are removed.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ValidationError
from django.db import models
from oauth2_provider.models import AbstractAccessToken, AbstractApplication, AbstractGrant, AbstractRefreshToken

from apps.kernel.ids import new_id
from apps.kernel.money import MoneyField
from apps.keys.models import ApiKey
from apps.oauth.redirects import MAX_URIS, redirect_problem
from apps.organizations.models import Project, User

MAX_NAME = 100

if TYPE_CHECKING:
    _CharField = models.CharField[str, str]
else:
    _CharField = models.CharField


class DigestField(_CharField):
    """A secret stored as its digest: it can be looked up but not read."""

    def get_prep_value(self, value: Any) -> Any:
        """Return the digest."""
        return None if value is None else sha256(str(value).encode()).hexdigest()


class _WrittenOnce(models.Model):
    """A row with a digest, which must not be saved twice: that would hash the digest."""

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Insert. Raises TypeError for an existing row; update those by query."""
        if not self._state.adding:
            raise TypeError(f"{type(self).__name__} is written once")
        super().save(*args, **kwargs)


class OAuthClient(AbstractApplication):
    """A program that may request consent: it registered itself, or its id is the address of its description."""

    post_logout_redirect_uris = allowed_origins = ""
    algorithm = AbstractApplication.NO_ALGORITHM

    def __str__(self) -> str:
        return self.name or self.client_id

    def clean(self) -> None:
        """Validate name and redirect URIs. Raises ValidationError."""
        uris = self.redirect_uris.split()
        if not 1 <= len(uris) <= MAX_URIS:
            raise ValidationError({"redirect_uris": f"Must be 1 to {MAX_URIS} URIs"})
        for uri in uris:
            if problem := redirect_problem(uri):
                raise ValidationError({"redirect_uris": f"{uri[:100]}: {problem}"})
        if len(self.name) > MAX_NAME or not self.name.isprintable():
            raise ValidationError({"name": f"Must be at most {MAX_NAME} printable characters"})
        if self.authorization_grant_type != self.GRANT_AUTHORIZATION_CODE:
            raise ValidationError({"authorization_grant_type": "Must be authorization_code"})

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save without a secret: clients are public, and the code's verifier and redirect URI protect it."""
        self.client_type, self.client_secret, self.hash_client_secret = self.CLIENT_PUBLIC, "", False
        super().save(*args, **kwargs)


class Consent(models.Model):
    """A user's permission for a program to send requests for a project, with the API key made for it."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    user = models.ForeignKey(User, models.CASCADE, related_name="consents")
    client = models.ForeignKey(OAuthClient, models.CASCADE, related_name="consents")
    project = models.ForeignKey(Project, models.CASCADE, related_name="consents")
    api_key = models.ForeignKey(ApiKey, models.CASCADE, related_name="consents")
    scope = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now_add=True)
    # When it last received a token.
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["user", "client", "project"], condition=models.Q(revoked_at=None), name="one_living_consent"
            )
        ]

    def __str__(self) -> str:
        return f"{self.client} for {self.user_id}"


class AuthorizationCode(_WrittenOnce, AbstractGrant):
    """A code for one exchange, which the browser takes to the program; used ones are kept to detect a second use.

    `token_family` is that of its tokens.
    """

    nonce = claims = ""
    code = DigestField(max_length=64, unique=True)
    consent = models.ForeignKey(Consent, models.CASCADE, related_name="codes")
    token_family = models.UUIDField(default=new_id, editable=False)
    used_at = models.DateTimeField(null=True, blank=True)

    class Meta(AbstractGrant.Meta):
        indexes = [models.Index(fields=["expires"], name="oauth_code_expires")]

    def __str__(self) -> str:
        return f"AuthorizationCode {self.pk}"


class AccessToken(AbstractAccessToken):
    """A token that a program sends with its requests to one resource."""

    token = None  # type: ignore[assignment]  # no column
    id_token = None
    consent = models.ForeignKey(Consent, models.CASCADE, related_name="access_tokens")
    token_family = models.UUIDField(editable=False)

    class Meta(AbstractAccessToken.Meta):
        indexes = [
            models.Index(fields=["token_family"], name="oauth_access_family"),
            models.Index(fields=["expires"], name="oauth_access_expires"),
        ]


class RefreshToken(AbstractRefreshToken):
    """A token for the program's next access token, valid once; a second use ends the whole family."""

    token = None  # type: ignore[assignment]  # no column
    consent = models.ForeignKey(Consent, models.CASCADE, related_name="refresh_tokens")

    class Meta(AbstractRefreshToken.Meta):
        pass


class KeyCode(_WrittenOnce):
    """A code for one exchange, which the browser takes to a program that gets an API key."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    code = DigestField(max_length=64, unique=True)
    user = models.ForeignKey(User, models.CASCADE, related_name="+")
    project = models.ForeignKey(Project, models.CASCADE, related_name="+")
    callback_url = models.CharField(max_length=2_000)
    code_challenge = models.CharField(max_length=128)
    usage_limit = MoneyField(null=True, blank=True)
    period_limit = MoneyField(null=True, blank=True)
    period = models.CharField(max_length=8, choices=ApiKey.Period.choices, blank=True)
    expires = models.DateTimeField(db_index=True)
    used_at = models.DateTimeField(null=True, blank=True)
    # The key that it was exchanged for.
    api_key = models.ForeignKey(ApiKey, models.SET_NULL, null=True, blank=True, related_name="+")

    def __str__(self) -> str:
        return f"KeyCode {self.id}"
