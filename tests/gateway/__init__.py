"""The hot path, part by part."""
