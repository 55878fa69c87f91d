"""Billing: balance, cards, top-ups, the subscription, transactions, invoices, monthly statements."""

from __future__ import annotations

from apps.console.pages.billing import cards, documents, payments

PATHS = [*payments.PATHS, *cards.PATHS, *documents.PATHS]
