"""Saved views of the log: each member's own, and those that members share in the organization."""

from __future__ import annotations

from typing import Final

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.http import QueryDict

from apps.kernel.errors import Forbidden, InvalidRequest
from apps.kernel.postgres.rows import find_row
from apps.logs.models import SavedView
from apps.organizations.models import Organization, User

# Saved views of one member in one organization.
MAX_VIEWS: Final = 50
# Characters of the columns.
MAX_NAME, MAX_QUERY = 80, 2_000
NO_VIEW: Final = "Saved view not found"
# Parameters that say where a reader is in the list, not which requests they look for.
_PLACE: Final = frozenset({"cursor", "limit", "orgId", "id"})


def find_views(organization: Organization, user: User) -> list[SavedView]:
    """Return a member's own views and the shared ones, by name."""
    rows = SavedView.objects.filter(organization=organization).filter(Q(created_by=user) | Q(is_shared=True))
    return list(rows.order_by("name", "id")[: 4 * MAX_VIEWS])


def save_view(organization: Organization, user: User, *, name: str, query: str, is_shared: bool) -> SavedView:
    """Save filters, given as a query string that the log's page has accepted. Raises InvalidRequest."""
    name = " ".join(name.split())
    if not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise InvalidRequest(f"Enter a name of at most {MAX_NAME} characters", param="name")
    filters = QueryDict(mutable=True)
    filters.update({key: str(value) for key, value in QueryDict(query).items() if value and key not in _PLACE})
    text = filters.urlencode()
    if not text:
        raise InvalidRequest("Choose at least one filter or a period before you save the view", param="name")
    if len(text) > MAX_QUERY:
        raise InvalidRequest("These filters are too long to save; shorten one", param="name")
    if SavedView.objects.filter(organization=organization, created_by=user).count() >= MAX_VIEWS:
        raise InvalidRequest(f"You have {MAX_VIEWS} saved views; delete one first", param="name")
    try:
        with transaction.atomic():
            return SavedView.objects.create(
                organization=organization, created_by=user, name=name, query=text, is_shared=is_shared
            )
    except IntegrityError:
        raise InvalidRequest("You already have a saved view with this name", param="name") from None


def delete_view(organization: Organization, user: User, view_id: str, *, is_admin: bool) -> SavedView:
    """Delete a view: one's own, as an admin also a shared one. Raises NotFound, Forbidden."""
    seen = SavedView.objects.filter(organization=organization).filter(Q(created_by=user) | Q(is_shared=True))
    view = find_row(seen, view_id, NO_VIEW)
    if view.created_by_id != user.id and not is_admin:
        raise Forbidden("Only its author or an admin can delete a shared view")
    view.delete()
    return view
