"""How access rules say no."""

from __future__ import annotations

from apps.kernel.errors import Forbidden
from apps.keys.iam import AccessRule


def refused_by(rule: AccessRule) -> Forbidden:
    """Return the refusal that names the rule, so that its owner can find it."""
    return Forbidden(f"Access denied by IAM rule {rule.id} ({rule.type}) of this API key", param="model")
