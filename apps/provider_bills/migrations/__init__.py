"""Migrations of provider bills."""
