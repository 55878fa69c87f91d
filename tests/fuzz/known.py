"""Kept seeds that still break their reader, by the name of their file, and why. Remove an entry when you fix it."""

from __future__ import annotations

KNOWN: dict[str, str] = {}
