"""Access control of guardrails: an administrator of an enterprise organization sees and changes its own."""

from __future__ import annotations

from apps.guardrails.models import CustomRule
from apps.kernel.errors import Forbidden
from apps.kernel.postgres.rows import find_row
from apps.organizations.access import access_organization
from apps.organizations.models import Organization, Role, User
from apps.organizations.plans import limits_of

NO_RULE = "Guardrail rule not found"
NO_PLAN = "Guardrails require an enterprise plan"


def access_guarded(user: User, organization_id: str) -> Organization:
    """Return an organization whose guardrails the user may manage. Raises NotFound, Forbidden."""
    organization, _ = access_organization(user, organization_id, Role.ADMIN)
    if not limits_of(organization.plan).guardrails:
        raise Forbidden(NO_PLAN)
    return organization


def access_custom_rule(user: User, organization_id: str, identifier: str) -> CustomRule:
    """Return a rule of an organization. Raises NotFound, also for a rule of another organization; Forbidden."""
    organization = access_guarded(user, organization_id)
    return find_row(CustomRule.objects.filter(organization=organization), identifier, NO_RULE)
