"""The product's domain apps. Imports run downwards only; `pyproject.toml` holds the contracts."""
