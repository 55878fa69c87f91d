"""Migrations of the gateway."""
