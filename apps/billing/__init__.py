"""Prices times usage, the ledger, payments and reservations."""
