"""From a token to whom it stands for: an API key, or a session where one is taken too.

Knows how to find a key and when one no longer works. Must never yield a principal that is nobody: it raises instead.
"""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

from apps.kernel.errors import Unauthenticated
from apps.keys.api_key_header import MISSING, find_presented_key
from apps.keys.models import ApiKey
from apps.keys.secrets import digest_of, is_api_key
from apps.organizations.models import Organization, User
from apps.organizations.sessions import extend, find_session


def find_api_key(token: str) -> ApiKey | None:
    """Return the key of this token with its project and organization, in one query.

    Keys that no longer work are returned too: what becomes of those is the caller's to say.
    """
    keys = ApiKey.objects.select_related("project__organization")
    return keys.filter(digest=digest_of(token)).first() if is_api_key(token) else None


def works(key: ApiKey) -> bool:
    """Tell whether the key itself is active and not expired, and its organization active."""
    if key.status != ApiKey.Status.ACTIVE or key.project.organization.status != Organization.Status.ACTIVE:
        return False
    return key.expires_at is None or key.expires_at > timezone.now()


class ApiKeyOrSession(BaseAuthentication):
    """Recognizes an API key (`request.auth` is an ApiKey, `request.user` None) or a signed-in user.

    To be used with `Recognized`: an API key is not a user.
    """

    def authenticate(self, request: Request) -> tuple[User | None, Any]:
        """Return who asks. Raises Unauthenticated, also when nothing is presented."""
        token = find_presented_key(request.headers)
        if is_api_key(token):
            key = find_api_key(token)
            if key is None or not works(key):
                raise Unauthenticated(MISSING)
            return None, key
        session = find_session(token)
        if session is None:
            raise Unauthenticated(MISSING)
        extend(session)
        return session.user, session

    def authenticate_header(self, request: Request) -> str:
        """Return what a 401 asks for."""
        return "Bearer"


class Recognized(BasePermission):
    """Lets in whomever `ApiKeyOrSession` has recognized."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Tell whether a key or a session stands behind the request."""
        return request.auth is not None
