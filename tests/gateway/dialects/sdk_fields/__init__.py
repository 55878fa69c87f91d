"""The fields of SDKs: none is without effect in silence."""
