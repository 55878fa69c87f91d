"""Thinking signature of the sandbox, as Anthropic signs thinking; the only one that it takes back."""

from __future__ import annotations

from typing import Final

SIGNATURE: Final = "c2FuZGJveCBzaWduYXR1cmU="
