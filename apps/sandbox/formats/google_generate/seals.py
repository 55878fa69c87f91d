"""The seals that the sandbox puts on its calls, as Gemini does, and that it insists on getting back."""

from __future__ import annotations

from base64 import b64encode

# What Google documents for calls that the model did not make itself.
SKIPPED = b64encode(b"skip_thought_signature_validator").decode()


def seal_of(call_id: str) -> str:
    """Return the seal of a call; base64 with characters and padding that ids do not have."""
    return b64encode(b"\xfb\xff" + f"sandbox:{call_id}".encode()).decode()
