"""Thought signatures of the sandbox's calls, as Gemini signs calls; it insists on getting them back."""

from __future__ import annotations

from base64 import b64encode

# Google's documented value for calls that the model did not make itself.
SKIPPED = b64encode(b"skip_thought_signature_validator").decode()


def signature_of(call_id: str) -> str:
    """Return the signature of a call; base64 with characters and padding that ids do not have."""
    return b64encode(b"\xfb\xff" + f"sandbox:{call_id}".encode()).decode()


def is_signature_of(call_id: str | None, signature: str) -> bool:
    """Return whether it is the signature of a call; clients may leave out ids, and then it is that of any call."""
    if call_id is None:
        return signature.startswith(signature_of("")[:12])
    return signature == signature_of(call_id)
