"""What fields of organizations and of their audit log mean, for the admin: where a name does not say it.

Knows words. Must never know a form.
"""

from __future__ import annotations

from typing import Final

ORGANIZATION: Final = {
    "billing_email": "Where invoices and notices of payments go; empty: to the owners.",
    "billing_company": "Stands on invoices; empty: the organization's name.",
    "billing_address": "Stands on invoices.",
    "billing_tax_id": "VAT or other tax number; stands on invoices.",
    "billing_notes": "Stands on invoices, such as an order number.",
    "referred_by": "The organization whose link it came by; empty: none.",
    "dev_plan": "The personal development subscription.",
    "dev_plan_credits_used": "USD of the allowance used in this cycle.",
    "dev_plan_billing_cycle_start": "When this cycle began (UTC); empty without the plan.",
    "dev_plan_expires_at": "When the plan ends (UTC); empty: no end is set.",
    "retention_level": "What its log keeps of requests: nothing of their content, metadata, or all of it.",
    "outage_policy": "Whether requests are served (open, within a small allowance) or refused (closed) while the "
    "store that counts credits and limits gives no answer.",
    "requests_per_minute": "Instead of the plan's number; 0 is no limit, empty is the plan's.",
    "is_personal": "Belongs to one person, for the development plan.",
    "plan": "Change it with the button above.",
    "plan_expires_at": "When the paid term ends; empty without one.",
    "status": "Suspend, reactivate or delete with the buttons above.",
    "credits": "The balance: the sum of the ledger. Grant credits with the button above.",
    "auto_top_up_enabled": "Charges the default card when the balance falls under the threshold.",
    "auto_top_up_threshold": "USD, at least 5.",
    "auto_top_up_amount": "USD for each automatic top-up, at least 10.",
    "referral_earnings": "USD earned in all by organizations that this one referred.",
    "dev_plan_credits_limit": "USD of the plan's own allowance in a cycle.",
    "dev_plan_allow_all_models": "Also models that the development plan does not include.",
    "credits_version": "Counts changes of the balance, so that no copy is replaced by an older one.",
}

AUDIT_ENTRY: Final = {
    "actor_type": "Somebody signed in, an operator in this admin, or the operator's machine.",
    "actor_id": "The id of who did it; empty: the machine.",
    "actor_email": "The address of who did it, as it was then.",
    "action": "What was done, as <thing>.<verb>.",
    "resource_type": "What kind of thing it was done to.",
    "resource_id": "The id of what it was done to.",
    "details": "What changed, without secrets.",
    "ip_address": "Where the request came from; empty: from no request.",
    "user_agent": "What the client called itself; empty: nothing.",
    "request_id": "The id of the request, as in its X-Request-Id header; empty: no request.",
}
