"""Help texts in the admin for fields of organizations and of their audit log."""

from __future__ import annotations

from typing import Final

ORGANIZATION: Final = {
    "billing_email": "Receives invoices and payment notices; empty: the owners do.",
    "billing_company": "Printed on invoices; empty: the organization's name.",
    "billing_address": "Stands on invoices.",
    "billing_tax_id": "VAT or other tax number; printed on invoices.",
    "billing_notes": "Printed on invoices, such as an order number.",
    "referred_by": "The organization whose referral link was used; empty: none.",
    "dev_plan": "The personal development subscription.",
    "dev_plan_credits_used": "USD of the allowance used in this cycle.",
    "dev_plan_billing_cycle_start": "When this cycle began (UTC); empty without the plan.",
    "dev_plan_expires_at": "When the plan ends (UTC); empty: no end is set.",
    "retention_level": "Stored data: no content, metadata only, or everything.",
    "outage_policy": "Whether requests are served (open, within a small allowance) or refused (closed) while the "
    "credit counter is unavailable.",
    "requests_per_minute": "Overrides the plan's limit; 0 is no limit, empty is the plan's.",
    "is_personal": "Belongs to one person, for the development plan.",
    "plan": "Change it with the button above.",
    "plan_expires_at": "When the paid term ends; empty without one.",
    "status": "Suspend, reactivate or delete with the buttons above.",
    "credits": "The balance: the sum of the ledger. Grant credits with the button above.",
    "auto_top_up_enabled": "Charges the default card when the balance falls under the threshold.",
    "auto_top_up_threshold": "USD, at least 5.",
    "auto_top_up_amount": "USD for each automatic top-up, at least 10.",
    "referral_earnings": "Total USD earned from referred organizations.",
    "dev_plan_credits_limit": "The plan's allowance per cycle in USD.",
    "dev_plan_allow_all_models": "Allows models that the development plan does not include.",
    "credits_version": "Counter of balance changes, so that an older copy never replaces a newer one.",
}

AUDIT_ENTRY: Final = {
    "actor_type": "A signed-in user, an operator in this admin, or the gateway itself.",
    "actor_id": "The user's id; empty: the gateway itself.",
    "actor_email": "The user's address at that time.",
    "action": "The action, as <thing>.<verb>.",
    "resource_type": "The type of the changed resource.",
    "resource_id": "The id of the changed resource.",
    "details": "The changes, without secrets.",
    "ip_address": "Where the request came from; empty: not from a request.",
    "user_agent": "The client's User-Agent header; empty: none.",
    "request_id": "The id of the request, as in its X-Request-Id header; empty: no request.",
}
