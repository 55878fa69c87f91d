"""The seal that the sandbox puts on its thinking, as Anthropic does, and the only one that it takes back."""

from __future__ import annotations

from typing import Final

SEAL: Final = "c2FuZGJveCBzaWduYXR1cmU="
